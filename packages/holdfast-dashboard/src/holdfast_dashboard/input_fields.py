"""Fields of a form, made from the JSON schema of a job type's input: text on the page, JSON in the job."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec
from msgspec import UNSET

from holdfast.core.errors import InputInvalid
from holdfast.core.redaction import MASK, has_mask, redact_value
from holdfast_dashboard.masked_inputs import restore_masked

FieldKind = Literal["text", "integer", "number", "choice", "json"]
Schema = Mapping[str, Any]

_INTEGER = re.compile(r"[+-]?\d{1,19}", re.ASCII)
_HINTS = {"integer": "whole number", "number": "number", "json": "JSON"}
_KINDS: Mapping[str, FieldKind] = {"string": "text", "integer": "integer", "number": "number"}


class InputField(msgspec.Struct, frozen=True):
    """One property of an input; `choices` are the values it may have, `default` is UNSET where there is none."""

    name: str
    kind: FieldKind
    required: bool
    hint: str = ""
    choices: tuple[Any, ...] = ()
    default: Any = UNSET

    def write(self, value: Any) -> str:
        """Return a value as the text of the field; what is absent or null is empty."""
        if value is UNSET or value is None:
            return ""
        if isinstance(value, str) and (self.kind in ("text", "choice") or value == MASK):
            return value
        raw = msgspec.json.encode(value)
        return (msgspec.json.format(raw, indent=2) if self.kind == "json" else raw).decode()

    @property
    def choice_texts(self) -> list[str]:
        """The texts of the choices."""
        return [self.write(each) for each in self.choices]

    def read(self, text: str) -> Any:
        """Return the value of a text, UNSET where it is left out. Raises: InputInvalid."""
        text = text if self.kind == "text" else text.strip()
        if not text and (not self.required or self.kind != "text"):
            return self._absent()
        match self.kind:
            case "text":
                return text
            case "integer" if _INTEGER.fullmatch(text):
                return int(text)
            case "choice":
                for each in self.choices:
                    if self.write(each) == text:
                        return each
            case "number" | "json":
                return self._decode(text)
            case _:
                pass
        raise self._refusal(f"{text[:40]!r} is not a {self.hint or 'choice of it'}")

    def _decode(self, text: str) -> Any:
        wanted: Any = float if self.kind == "number" else Any
        try:
            return msgspec.json.decode(text, type=wanted)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise self._refusal(f"not {self.hint}: {error}") from None

    def _absent(self) -> Any:
        if self.required:
            raise self._refusal("a value is missing")
        return UNSET

    def _refusal(self, problem: str) -> InputInvalid:
        return InputInvalid(f"{self.name}: {problem}", path=f"$.{self.name}")


def input_fields(schema: Schema | None) -> list[InputField] | None:
    """Return the fields of an object's schema, None for anything else: that is written as JSON."""
    if schema is None:
        return None
    shape = _resolve(schema, schema)
    properties = shape.get("properties")
    if shape.get("type") != "object" or not properties:
        return None
    required = set(shape.get("required", ()))
    return [_field(name, each, schema, name in required) for name, each in properties.items()]


def _field(name: str, given: Schema, root: Schema, required: bool) -> InputField:
    shape = _resolve(given, root)
    default = given.get("default", UNSET)
    text = str(given.get("description", ""))
    if shape.get("type") == "boolean":
        return InputField(name, "choice", required, text, (True, False), default)
    if choices := shape.get("enum"):
        return InputField(name, "choice", required, text, tuple(choices), default)
    kind = _KINDS.get(str(shape.get("type")), "json")
    hint = ", ".join(filter(None, (_HINTS.get(kind) or shape.get("format"), text)))
    return InputField(name, kind, required, hint, (), default)


def _resolve(shape: Schema, root: Schema) -> Schema:
    """Follow references, and see through what may also be null."""
    for _ in range(10):
        parts = [each for each in shape.get("anyOf", ()) if each != {"type": "null"}]
        if reference := shape.get("$ref"):
            shape = root.get("$defs", {}).get(str(reference).rpartition("/")[2], {})
        elif len(parts) == 1:
            shape = parts[0]
        elif len(shape.get("allOf", ())) == 1:
            shape = shape["allOf"][0]
        else:
            break
    return shape


def field_texts(fields: Sequence[InputField], before: Mapping[str, Any]) -> dict[str, str]:
    """Return the texts that a form begins with: an earlier input with its secrets masked, or defaults."""
    shown = redact_value(dict(before))
    return {each.name: each.write(shown.get(each.name, each.default)) for each in fields}


def read_fields(
    fields: Sequence[InputField], texts: Mapping[str, str], before: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the input that a form describes; what was not edited is as before. Raises: InputInvalid."""
    value, began = dict(before), field_texts(fields, before)
    for each in fields:
        text = texts.get(each.name, "").replace("\r\n", "\n")
        if text == began[each.name] and (each.name in before or not each.required):
            continue
        found = each.read(text)
        if found is UNSET:
            value.pop(each.name, None)
        else:
            value[each.name] = unmask(found, before.get(each.name), each.name)
    return value


def read_json_input(text: str, before: Any) -> Any:
    """Return the input that a text of JSON describes; masks mean what they hid. Raises: InputInvalid."""
    try:
        value = msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise InputInvalid(f"the input is not JSON: {error}", help="correct the text") from None
    return unmask(value, before, "the input")


def unmask(edited: Any, before: Any, name: str) -> Any:
    """Return an edited value with the secrets that were masked in it. Raises: InputInvalid for a mask elsewhere."""
    value = restore_masked(edited, before)
    if has_mask(value) and not has_mask(before):
        raise InputInvalid(
            f"{name} has {MASK} where no secret was masked",
            path=f"$.{name}",
            help="you can keep or replace a masked value, but not move it",
        )
    return value
