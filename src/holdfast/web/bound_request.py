"""One request on its way to a handler: its parameters and body checked against the route's declaration."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from email.message import Message
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.requests import Request

from holdfast.admin.authorize import Caller
from holdfast.admin.service import Service
from holdfast.core.duration import milliseconds
from holdfast.core.errors import BadRequest, UnsupportedMedia
from holdfast.core.ids import parse_id
from holdfast.web.route import Param, Route

if TYPE_CHECKING:
    from holdfast.web.state import Site

_LONGEST_REASON = 1_000
_SECONDS = re.compile(r"\d{1,9}(?:\.\d{1,3})?", re.ASCII)
_ENCODINGS = ("utf-8", "utf8", "us-ascii")
_FLAGS = {"true": True, "1": True, "false": False, "0": False}


@dataclass(frozen=True, slots=True)
class Call:
    """What a handler gets."""

    site: Site
    request: Request
    caller: Caller
    params: dict[str, Any]
    body: Any = None

    @property
    def service(self) -> Service:
        """What can be asked and done."""
        return self.site.service

    @property
    def expected(self) -> Sequence[str] | None:
        """The versions that If-Match names."""
        header = self.request.headers.get("if-match")
        if header is None:
            return None
        return [each.strip().removeprefix("W/").strip('"') for each in header.split(",")]

    def __getitem__(self, name: str) -> Any:
        """Return a parameter."""
        return self.params[name]


def read_params(route: Route, request: Request) -> dict[str, Any]:
    """Return every declared parameter, checked. Raises: BadRequest, InvalidId, InvalidDuration."""
    declared = {each.name for each in route.params if each.place == "query"}
    unknown = sorted(set(request.query_params) - declared)
    if unknown:
        known = f"there are {', '.join(sorted(declared))}" if declared else "there is none"
        raise BadRequest(f"there is no parameter {unknown[0][:40]!r}", help=known)
    for name in declared:
        if len(request.query_params.getlist(name)) > 1:
            raise BadRequest(f"the parameter {name!r} came twice")
    return {each.name: _read(each, request) for each in route.params}


def read_json(route: Route, raw: bytes, media: str | None = None) -> Any:
    """Return the body as the route declares it; an absent one stands for its defaults.

    Raises: BadRequest, UnsupportedMedia.
    """
    if route.body is None:
        # Many clients send an empty object with every POST.
        if raw.strip() not in (b"", b"{}"):
            raise BadRequest("no body is expected here")
        return None
    if raw and media is not None:
        _check_media(media)
    try:
        return msgspec.json.decode(raw or b"{}", type=route.body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadRequest(f"the body cannot be read: {str(error)[:200]}") from None


def _check_media(media: str) -> None:
    header = Message()
    header["Content-Type"] = media
    if (
        header.get_content_type() != "application/json"
        or header.get_content_charset("utf-8") not in _ENCODINGS
    ):
        raise UnsupportedMedia(f"the body is said to be {media[:100]!r}")


def reason_of(request: Request, body: Any) -> str | None:
    """Return why a change is wanted, from the body or from the header X-Reason. Raises: BadRequest."""
    reason = getattr(body, "reason", None) or request.headers.get("x-reason")
    if reason is None:
        return None
    text = str(reason)
    if len(text) > _LONGEST_REASON or "\0" in text:
        raise BadRequest(f"a reason has at most {_LONGEST_REASON} characters")
    return text


def _read(param: Param, request: Request) -> Any:
    given = (request.path_params if param.place == "path" else request.query_params).get(param.name)
    if given is None:
        return param.default
    text = str(given)
    if "\0" in text:
        raise BadRequest(f"{param.name} contains a character that cannot be stored")
    if param.choices and text not in param.choices:
        raise BadRequest(f"{param.name} is not one of {', '.join(param.choices)}")
    return _value(param, text)


def _value(param: Param, text: str) -> Any:
    match param.kind:
        case "text":
            return text
        case "id":
            return str(parse_id(text))
        case "duration":
            ms = milliseconds(float(text) if _SECONDS.fullmatch(text) else text)
            if not param.least <= ms <= param.most:
                raise BadRequest(f"{param.name} is not between {param.least} and {param.most} ms")
            return ms
        case "flag":
            if text.lower() not in _FLAGS:
                raise BadRequest(f"{param.name} is neither true nor false")
            return _FLAGS[text.lower()]
        case "number":
            return _number(param, text)


def _number(param: Param, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise BadRequest(f"{param.name} is not a whole number")
    if not param.least <= int(text) <= param.most:
        raise BadRequest(f"{param.name} is not from {param.least} to {param.most}")
    return int(text)
