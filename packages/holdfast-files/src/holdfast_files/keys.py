"""Keys of objects: relative paths that mean the same in every store."""

from __future__ import annotations

from pathlib import Path

from holdfast.core.errors import InvalidOption
from holdfast_files.content import content_of
from holdfast_files.errors import InvalidObjectKey

MAX_BYTES = 1024
MAX_PART_BYTES = 255
RESERVED = ".holdfast"
"""Where a local directory keeps checksums and unfinished files."""


def check_key(key: str) -> str:
    """Return the key as it is if every store accepts it. Raises: InvalidObjectKey."""
    problem = _problem(key)
    if problem:
        raise InvalidObjectKey(f"{repr(key)[:80]} {problem}")
    return key


def check_prefix(prefix: str) -> str:
    """Return a folder of keys without its final slash; "" is everything. Raises: InvalidObjectKey."""
    folder = prefix.removesuffix("/")
    return check_key(folder) if folder else ""


def content_key(prefix: str, data: bytes | bytearray | memoryview | Path, suffix: str = "") -> str:
    """Return `prefix/<SHA-256 of the content><suffix>`: the same content always has the same key.

    Raises: InvalidObjectKey, InvalidOption.
    """
    if not isinstance(data, (bytes, bytearray, memoryview, Path)):
        raise InvalidOption("content_key takes bytes or a Path: a stream can be read only once")
    folder = check_prefix(prefix)
    with content_of(data) as content:
        name = f"{content.sha256}{suffix}"
    return check_key(f"{folder}/{name}" if folder else name)


def _problem(key: str) -> str | None:
    try:
        size = len(key.encode())
    except UnicodeEncodeError:
        return "is not valid Unicode"
    if not 1 <= size <= MAX_BYTES:
        return f"is {size} bytes long; keys have 1 to {MAX_BYTES}"
    if "\\" in key or any(ord(each) < 32 or ord(each) == 127 for each in key):
        return "contains a backslash or a control character"
    return next(filter(None, map(_problem_of_part, key.split("/"))), None)


def _problem_of_part(part: str) -> str | None:
    if not part:
        return "begins or ends with a slash, or contains two in a row"
    if part in (".", ".."):
        return f"contains {part!r}"
    if part == RESERVED:
        return f"contains {RESERVED!r}, which is reserved"
    if len(part.encode()) > MAX_PART_BYTES:
        return f"has a part longer than {MAX_PART_BYTES} bytes"
    return None
