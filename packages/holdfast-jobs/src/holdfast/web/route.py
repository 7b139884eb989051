"""Routes as data, and requests bound to them.

The served paths, the OpenAPI document, the access matrix and the docs come from the table of routes.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from email.message import Message
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from holdfast.admin.access import Caller
from holdfast.admin.service import Service
from holdfast.core.duration import milliseconds
from holdfast.core.errors import BadRequest, UnsupportedMedia
from holdfast.core.ids import parse_id

if TYPE_CHECKING:
    from holdfast.web.app import Site

Method = Literal["GET", "POST", "PATCH", "DELETE"]
ParamPlace = Literal["path", "query"]
Kind = Literal["text", "id", "number", "flag", "duration"]

Handler = Callable[["BoundRequest"], Awaitable["ApiResponse | Response"]]

_SECONDS = re.compile(r"\d{1,9}(?:\.\d{1,3})?", re.ASCII)
_ENCODINGS = ("utf-8", "utf8", "us-ascii")
_FLAGS = {"true": True, "1": True, "false": False, "0": False}


@dataclass(frozen=True, slots=True)
class Param:
    """One parameter: where it is, what it must look like, and its default."""

    name: str
    place: ParamPlace
    kind: Kind = "text"
    text: str = ""
    default: Any = None
    min: int = 0
    max: int = 1_000
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ApiResponse:
    """What a handler returns: a value for JSON, a status, headers, and the version (ETag) of what it shows."""

    value: Any = None
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    version: str | None = None


@dataclass(frozen=True, slots=True)
class Route:
    """One route. The policy names the least role for `action`; None needs no authentication.

    It answers with 200, or with the successes among `answers`; with 404 where its path names something, and with 412
    where that has versions. Its description is the handler's docstring. The noun, by default the handler's module, is
    part of its name, and its tag unless that is given. One that works `offline` is called while the database is away,
    for callers this process remembers. The handler of a `raw` one reads query and body itself.
    """

    method: Method
    path: str
    action: str | None
    handler: Handler
    params: tuple[Param, ...] = ()
    body: type[msgspec.Struct] | None = None
    versioned: bool = False
    answers: tuple[int, ...] = ()
    media: str = "application/json"
    tag: str = ""
    other_noun: str = ""
    offline: bool = False
    raw: bool = False

    @property
    def noun(self) -> str:
        """What it is about."""
        return self.other_noun or self.handler.__module__.rpartition(".")[2]

    @property
    def statuses(self) -> set[int]:
        """All that it answers with, besides what any route may."""
        usual = set() if any(each < 300 for each in self.answers) else {200}
        if any(each.place == "path" for each in self.params):
            usual |= {404, 412} if self.versioned and self.method != "GET" else {404}
        return usual.union(self.answers)

    @property
    def name(self) -> str:
        """The operation's id in the OpenAPI document."""
        return f"{self.noun}_{self.handler.__name__}"

    @property
    def text(self) -> str:
        """What it does, in a sentence."""
        return (self.handler.__doc__ or "").partition("\n")[0]


ID = Param("id", "path", "id", "The id.")
FILTER = Param(
    "filter",
    "query",
    text='A filter such as `state:failed type:mail.* age>5m error:"timed out"`.',
    default="",
)
LIMIT = Param("limit", "query", "number", "Maximum items per page.", 50, 1, 1_000)
AFTER = Param("after", "query", text="The cursor that the previous page returned as `next`.")


class Reason(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Why a change is made; kept in the audit log."""

    reason: str | None = None


def command(path: str, action: str, handler: Handler, *params: Param, **more: Any) -> Route:
    """Return the route of a command, which takes a reason in its body."""
    return Route("POST", path, action, handler, params, Reason, **more)


@dataclass(frozen=True, slots=True)
class BoundRequest:
    """A request as its handler gets it: authenticated, parameters and body checked against the route.

    It is `offline` when its caller could not be looked up because the database is away.
    """

    site: Site
    http: Request
    caller: Caller
    params: dict[str, Any]
    body: Any = None
    offline: bool = False

    @property
    def service(self) -> Service:
        """The operations of the admin layer."""
        return self.site.service

    @property
    def expected(self) -> Sequence[str] | None:
        """The versions that If-Match names."""
        header = self.http.headers.get("if-match")
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
    if unknown and not route.raw:
        known = f"use one of {', '.join(sorted(declared))}" if declared else "this route takes none"
        raise BadRequest(f"unknown parameter {unknown[0][:40]!r}", help=known)
    for name in declared:
        if len(request.query_params.getlist(name)) > 1:
            raise BadRequest(f"the parameter {name!r} was given twice")
    return {each.name: _read_param(each, request) for each in route.params}


def read_json(route: Route, raw: bytes, media: str | None = None) -> Any:
    """Return the body as the route declares it; without one, its defaults. Raises: BadRequest, UnsupportedMedia."""
    if route.body is None:
        # Many clients send an empty object with every POST.
        if raw.strip() not in (b"", b"{}"):
            raise BadRequest("this route takes no body")
        return None
    if raw and media is not None:
        _check_media(media)
    try:
        return msgspec.json.decode(raw or b"{}", type=route.body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadRequest(f"the body is invalid: {str(error)[:200]}") from None


def read_reason(request: Request, body: Any) -> str | None:
    """Return why a change is made, from the body or the header X-Reason."""
    reason: str | None = getattr(body, "reason", None)
    if reason:
        return reason
    header = request.headers.get("x-reason", "")
    try:
        # Programs send UTF-8 though headers are read as Latin-1.
        return header.encode("latin-1").decode() or None
    except UnicodeDecodeError:
        return header


def _check_media(media: str) -> None:
    header = Message()
    header["Content-Type"] = media
    if (
        header.get_content_type() != "application/json"
        or header.get_content_charset("utf-8") not in _ENCODINGS
    ):
        raise UnsupportedMedia(f"the body's content type is {media[:100]!r}")


def _read_param(param: Param, request: Request) -> Any:
    given = (request.path_params if param.place == "path" else request.query_params).get(param.name)
    if given is None:
        return param.default
    text = str(given)
    if "\0" in text:
        raise BadRequest(f"{param.name} contains a character that cannot be stored")
    if param.choices and text not in param.choices:
        raise BadRequest(f"{param.name} is not one of {', '.join(param.choices)}")
    match param.kind:
        case "text":
            return text
        case "id":
            return str(parse_id(text))
        case "duration":
            return _duration(param, text)
        case "flag":
            if text.lower() not in _FLAGS:
                raise BadRequest(f"{param.name} is neither true nor false")
            return _FLAGS[text.lower()]
        case "number":
            return _number(param, text)


def _duration(param: Param, text: str) -> int:
    ms = milliseconds(float(text) if _SECONDS.fullmatch(text) else text)
    if not param.min <= ms <= param.max:
        raise BadRequest(f"{param.name} is not between {param.min} and {param.max} ms")
    return ms


def _number(param: Param, text: str) -> int:
    is_number = text.isascii() and text.isdigit() and len(text) < 10
    if not (is_number and param.min <= int(text) <= param.max):
        raise BadRequest(f"{param.name} is not a whole number from {param.min} to {param.max}")
    return int(text)
