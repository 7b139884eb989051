"""Inputs and outputs as JSON text, checked against their Python type when written and when read.

Dataclasses, msgspec Structs, TypedDicts, attrs classes and builtins are msgspec's; pydantic models are recognised by
their methods, so that pydantic is never imported for those who do not use it. A text must also be one that both
databases keep exactly: each rule is first checked by a quick scan of the bytes, and exactly only where that finds
something.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, Literal, TypeVar, get_origin

import msgspec

from holdfast.core.errors import (
    HandlerInvalid,
    InputInvalid,
    OutputInvalid,
    PayloadError,
    PayloadNotEncodable,
    PayloadTooLarge,
)

SIZE_LIMIT = 1024 * 1024
DEPTH_LIMIT = 200
SMALLEST_INT = -(2**63)
LARGEST_INT = 2**63 - 1
SEALED_PREFIX = '{"$sealed":'
LARGE_PREFIX = '{"$large":'
RESERVED = (SEALED_PREFIX, LARGE_PREFIX)
"""What a sealed payload, and a reference to one that is kept elsewhere, begin with; no payload in clear may."""

_BACKSLASH = ord("\\")
_RESERVED = tuple(map(str.encode, RESERVED))
_NUL = b"\\u0000"
# An even number of backslashes before it would mean the six characters themselves, not a NUL.
_EXACT_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")
_NUMBER = re.compile(rb"-?[0-9][0-9.eE+-]*")
_DIGITS_TO_ZERO = bytes.maketrans(b"123456789", b"000000000")
_LONG_NUMBER = "0" * len(str(LARGEST_INT))
_ONE_KIND_OF_BRACKET = bytes.maketrans(b"{}", b"[]")
_ALL_BUT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_LOOKED_INTO = frozenset({dict, list, tuple, float})


def checked_text(raw: bytes, limit: int = SIZE_LIMIT) -> str:
    """Return the JSON text, or refuse what is too large or what a database would change."""
    if len(raw) > limit:
        raise PayloadTooLarge(f"the payload has {len(raw)} bytes, the limit is {limit}")
    if _BACKSLASH in raw and _NUL in raw and _EXACT_NUL.search(raw):
        raise PayloadNotEncodable("the payload contains a NUL character")
    if len(raw) >= len(_LONG_NUMBER) and _LONG_NUMBER in raw.translate(_DIGITS_TO_ZERO).decode(
        "latin-1"
    ):
        _check_ints(raw)
    if raw.startswith(_RESERVED):
        raise PayloadNotEncodable("the payload begins like a sealed one, or with the key $large")
    if len(raw) > 2 * DEPTH_LIMIT and raw.count(b"[") + raw.count(b"{") > DEPTH_LIMIT:
        _check_depth(raw)
    return raw.decode()


def check_finite(value: Any) -> None:
    """Refuse NaN and infinities anywhere in a value made of builtin types."""
    waiting = [value]
    for each in waiting:
        if type(each) is dict:
            waiting += [member for member in each.values() if type(member) in _LOOKED_INTO]
        elif type(each) in (list, tuple):
            waiting += [member for member in each if type(member) in _LOOKED_INTO]
        elif type(each) is float and not math.isfinite(each):
            raise PayloadNotEncodable(f"the payload contains {each}, which JSON cannot express")


def _check_ints(raw: bytes) -> None:
    for number in _NUMBER.findall(_without_strings(raw)):
        if not number.lstrip(b"-").isdigit():
            continue
        # Numbers of absurd length are refused by length: converting them takes quadratic time.
        if len(number) > 20 or not SMALLEST_INT <= int(number) <= LARGEST_INT:
            raise PayloadNotEncodable(f"{_short(number)} is an integer beyond 64 bits")


def _check_depth(raw: bytes) -> None:
    brackets = _without_strings(raw).translate(_ONE_KIND_OF_BRACKET, _ALL_BUT_BRACKETS)
    for _ in range(DEPTH_LIMIT):
        brackets = brackets.replace(b"[]", b"")
        if not brackets:
            return
    raise PayloadNotEncodable(f"the payload is nested deeper than {DEPTH_LIMIT} levels")


def _without_strings(raw: bytes) -> bytes:
    without_escapes = raw.replace(b"\\\\", b"").replace(b'\\"', b"")
    return b"".join(without_escapes.split(b'"')[::2])


def _short(number: bytes) -> str:
    text = number.decode()
    return text if len(text) <= 30 else f"{text[:12]}…, {len(text)} digits"


PayloadRole = Literal["input", "output", "data"]
"""`data` is what a signal brings, which whoever sends it does not check."""

_PATH = re.compile(r"(.*) - at `(\$.*)`", re.DOTALL)


class TypeCodec:
    """Writes and reads the values of one type."""

    __slots__ = ("_as_model", "_dump", "_load", "_type", "_untyped", "name", "role")

    def __init__(self, type_: Any, role: PayloadRole = "input") -> None:
        """Prepare the codec, or raise HandlerInvalid when the type has no JSON form."""
        self.name = type_name(type_)
        self.role: PayloadRole = role
        self._type = type_
        self._untyped = type_ is Any or type_ is object or isinstance(type_, TypeVar)
        self._dump: Callable[[Any], bytes] = _ENCODER.encode
        self._as_model: Callable[[Any], Any] | None = None
        self._load: Callable[[str | bytes], Any]
        if _is_model(type_):
            self._dump, self._as_model = _model_to_json, type_.model_validate
            self._load = type_.model_validate_json
        else:
            self._load = self._decoder(type_).decode

    def encode(self, value: Any, limit: int = SIZE_LIMIT) -> str:
        """Return the value as JSON text, or raise a PayloadError that says what is wrong."""
        try:
            if self._as_model is not None:
                value = self._as_model(value)
            raw = self._dump(value)
        except (TypeError, ValueError, RecursionError) as error:
            raise self._not_encodable(error) from error
        text = checked_text(raw, limit)
        # Encoders write null for NaN and infinities, so only a null can hide one.
        if "null" in text:
            check_finite(msgspec.to_builtins(value, enc_hook=to_builtins))
        if not self._untyped:
            try:
                self._load(raw)
            except ValueError as error:
                raise self._wrong_shape(error, "does not fit") from error
        return text

    def decode(self, text: str | bytes) -> Any:
        """Return the value, or raise InputInvalid or OutputInvalid when it no longer fits."""
        try:
            return self._load(text)
        except ValueError as error:
            how = "does not fit" if self.role == "data" else "no longer decodes as"
            raise self._wrong_shape(error, how) from error

    def schema(self) -> dict[str, Any] | None:
        """Return the JSON schema of the type, None where any value fits or none can be made."""
        if self._untyped:
            return None
        try:
            if _is_model(self._type):
                found: dict[str, Any] = self._type.model_json_schema()
                return found
            return msgspec.json.schema(self._type)
        except (TypeError, ValueError, NotImplementedError, NameError):
            return None

    def _decoder(self, type_: Any) -> msgspec.json.Decoder[Any]:
        try:
            return msgspec.json.Decoder(Any if self._untyped else type_, dec_hook=_from_builtins)
        except (TypeError, NameError) as error:
            raise HandlerInvalid(
                f"{self.name} cannot be an {self.role} type: {error}",
                help="use a dataclass, msgspec Struct, pydantic model, TypedDict or builtin types",
            ) from error

    def _not_encodable(self, error: Exception) -> PayloadError:
        if isinstance(error, RecursionError):
            reason = f"is nested deeper than {DEPTH_LIMIT} levels"
        elif "surrogates not allowed" in str(error):
            reason = "contains a lone surrogate"
        elif _model_problem(error) is not None:
            return self._wrong_shape(error, "does not fit")
        else:
            reason = f"cannot be written as JSON: {error}"
        return PayloadNotEncodable(f"the {self.role} {reason}")

    def _wrong_shape(self, error: Exception, how: str) -> InputInvalid | OutputInvalid:
        problem, path = _model_problem(error) or _native_problem(error)
        kind = InputInvalid if self.role == "input" else OutputInvalid
        where = "" if path == "$" else f" at {path}"
        message = f"the {self.role} {how} {self.name}{where}: {problem}"
        return kind(message, type_name=self.name, path=path)


def type_name(type_: Any) -> str:
    """Return the name under which messages speak of a type."""
    if type_ is None:
        return "None"
    if isinstance(type_, type) and get_origin(type_) is None:
        return type_.__name__
    return str(type_).replace("typing.", "")


def _is_model(type_: Any) -> bool:
    return hasattr(type_, "model_validate_json") and hasattr(type_, "model_dump_json")


def _model_to_json(model: Any) -> bytes:
    # The text is read back by the type at once, so the serialiser's own warnings add nothing.
    text: str = model.model_dump_json(by_alias=True, round_trip=True, warnings=False)
    return text.encode()


def to_builtins(value: Any) -> Any:
    """Return what msgspec cannot encode as what it can. Raises: TypeError."""
    if _is_model(type(value)):
        return value.model_dump(mode="json", by_alias=True, round_trip=True, warnings=False)
    raise TypeError(f"objects of type {type_name(type(value))} have no JSON form")


def _from_builtins(type_: Any, value: Any) -> Any:
    if type_ is object:
        return value
    if not _is_model(type_):
        raise ValueError(f"Expected `{type_name(type_)}`, got `{type_name(type(value))}`")
    try:
        return type_.model_validate_json(msgspec.json.encode(value))
    except ValueError as error:
        problem, path = _model_problem(error) or _native_problem(error)
        raise ValueError(f"{problem} ({path} of {type_name(type_)})") from error


def _native_problem(error: Exception) -> tuple[str, str]:
    match = _PATH.fullmatch(str(error))
    return (match[1], match[2]) if match else (str(error), "$")


def _model_problem(error: Exception) -> tuple[str, str] | None:
    # Only the message is taken: pydantic's full text repeats the value, which may be a secret.
    problems = error.errors() if hasattr(error, "errors") else None
    if not problems:
        return None
    first = problems[0]
    steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in first["loc"])
    return first["msg"], "$" + "".join(steps)


_ENCODER = msgspec.json.Encoder(enc_hook=to_builtins)
_ANY = TypeCodec(Any)
_ANY_OUTPUT = TypeCodec(Any, "output")


def encode_any(value: Any, limit: int = SIZE_LIMIT) -> str:
    """Return any value as JSON text, checked only for what JSON and the databases can keep."""
    return _ANY.encode(value, limit)


def encode_output(value: Any, limit: int = SIZE_LIMIT) -> str:
    """Return an output of any type as JSON text; what is wrong with it is said of the output."""
    return _ANY_OUTPUT.encode(value, limit)


def decode_any(text: str | bytes) -> Any:
    """Return the plain value of a JSON text."""
    return _ANY.decode(text)
