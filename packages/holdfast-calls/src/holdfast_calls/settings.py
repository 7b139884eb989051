"""Where service calls go, and the tokens of both sides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from holdfast.settings import HttpUrl, Secret, setting


@dataclass(frozen=True, slots=True)
class CallSettings:
    """Service calls."""

    PREFIX: ClassVar[str] = "WORKER_API_"

    base_url: str | None = setting(
        HttpUrl(), None, "Base URL of the API that cycles call (service calls)."
    )
    service_token: str | None = setting(
        Secret(), None, "Token for service calls, sent as x-service-token.", secret=True
    )
    service_token_previous: str | None = setting(
        Secret(), None, "Previous token, still accepted during a rotation.", secret=True
    )


GROUPS = (CallSettings,)
