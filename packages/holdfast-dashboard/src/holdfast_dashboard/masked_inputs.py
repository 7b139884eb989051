"""Inputs whose secrets are masked in an editor, and what becomes of the masks when they are sent back."""

from __future__ import annotations

import json
from typing import Any

from holdfast.core.redaction import has_mask, redact_value


def restore_masked(edited: Any, original: Any) -> Any:
    """Return what became of a redacted value in an editor, with its masks replaced by what they hid."""
    return _restore(edited, redact_value(original), original)


def _restore(edited: Any, shown: Any, original: Any) -> Any:
    if edited == shown:
        return original
    if isinstance(edited, dict) and isinstance(original, dict) and isinstance(shown, dict):
        return {
            key: _restore(each, shown[key], original[key]) if key in original else each
            for key, each in edited.items()
        }
    if isinstance(edited, list) and isinstance(original, list):
        return _restore_items(edited, shown, original)
    return edited


def _restore_items(edited: list[Any], shown: list[Any], original: list[Any]) -> list[Any]:
    """Restore a list whose items may have moved; one that was also changed, or looks like another, keeps its mask."""
    hidden: dict[str, list[Any]] = {}
    for each, secret in zip(shown, original, strict=True):
        hidden.setdefault(_digest(each), []).append(secret)
    is_in_place = len(edited) == len(original)
    restored = []
    for place, each in enumerate(edited):
        found = hidden.get(_digest(each), []) if has_mask(each) else []
        if is_in_place and (not found or each == shown[place]):
            restored.append(_restore(each, shown[place], original[place]))
        else:
            is_sure = found and all(other == found[0] for other in found)
            restored.append(found[0] if is_sure else each)
    return restored


def _digest(value: Any) -> str:
    return json.dumps(value, sort_keys=True)
