"""Routes as data: from this table come the served paths, the OpenAPI document, the access matrix and the docs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from starlette.responses import Response

if TYPE_CHECKING:
    from holdfast.web.bound_request import Call

Method = Literal["GET", "POST", "PATCH", "DELETE"]
Place = Literal["path", "query"]
Kind = Literal["text", "id", "number", "flag", "duration"]

Handler = Callable[["Call"], Awaitable["Answer | Response"]]


@dataclass(frozen=True, slots=True)
class Param:
    """One parameter: where it stands, what it must look like, and what it is when left out."""

    name: str
    place: Place
    kind: Kind = "text"
    text: str = ""
    default: Any = None
    least: int = 0
    most: int = 1_000
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Answer:
    """What a handler answers with: a value for JSON, a status, headers, and the version of what it shows."""

    value: Any = None
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    version: str | None = None


@dataclass(frozen=True, slots=True)
class Route:
    """One route. `action` names the least role by the policy; None is open to everybody."""

    method: Method
    path: str
    action: str | None
    handler: Handler
    text: str
    params: tuple[Param, ...] = ()
    body: type[msgspec.Struct] | None = None
    versioned: bool = False
    answers: tuple[int, ...] = (200,)
    media: str = "application/json"
    tag: str = ""

    @property
    def name(self) -> str:
        """How documents call the operation."""
        return f"{self.handler.__module__.rpartition('.')[2]}_{self.handler.__name__}"


ID = Param("id", "path", "id", "The id.")
FILTER = Param(
    "filter", "query", text='As in `state:failed type:mail.* age>5m error:"timed out"`.', default=""
)
LIMIT = Param("limit", "query", "number", "Most items of the page.", 50, 1, 1_000)
AFTER = Param("after", "query", text="The cursor that the previous page gave as `next`.")
