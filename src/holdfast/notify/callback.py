"""Keeps a notifier's threads safe from the callbacks that they run."""

from __future__ import annotations

import logging

from holdfast.notify.port import Hint, OnHint

log = logging.getLogger("holdfast.notify")


def guarded(on_hint: OnHint) -> OnHint:
    """Return a callback that never raises; the first error of the given one is logged."""
    reported = False

    def call(hint: Hint) -> None:
        nonlocal reported
        try:
            on_hint(hint)
        except Exception:
            if not reported:
                reported = True
                log.exception("a callback for hints failed; its next errors are not logged")

    return call
