"""The door: who asks, by token, by cookie, by the host application's word, or by sitting at this machine."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Literal
from urllib.parse import urlsplit

from starlette.requests import Request

from holdfast.admin.roles import LOCAL, Principal
from holdfast.admin.tokens import PREFIX, TokenAdmin
from holdfast.core.errors import CrossSite, Unauthenticated, UnsafeBind

COOKIE = "holdfast"

Way = Literal["token", "cookie", "hook", "loopback"]

Hook = Callable[[Request], "Principal | Awaitable[Principal | None] | None"]
"""The host application's own word on who asks; None when it does not know them."""

_FORWARDED = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip", "via")
_SAFE_METHODS = ("GET", "HEAD", "OPTIONS")


@dataclass(frozen=True, slots=True)
class Entry:
    """Somebody who came in, and how."""

    principal: Principal
    way: Way


class Door:
    """Establishes who asks. It fails closed: whoever is not known stays outside."""

    def __init__(self, tokens: TokenAdmin, hook: Hook | None = None) -> None:
        self._tokens = tokens
        self._hook = hook
        self._given_out = False

    async def enter(self, request: Request) -> Entry:
        """Return who asks. Raises: Unauthenticated, CrossSite."""
        entry = await self._entry(request)
        if entry is None:
            raise Unauthenticated("no valid token came with the request")
        check_site(request, entry.way)
        return entry

    async def principal_of(self, secret: str) -> Principal:
        """Return whom a secret stands for. Raises: Unauthenticated."""
        principal = await self._tokens.principal(secret)
        if principal is None:
            raise Unauthenticated("the token opens nothing")
        return principal

    async def _entry(self, request: Request) -> Entry | None:
        scheme, _, secret = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and (secret.startswith(PREFIX) or self._hook is None):
            return Entry(await self.principal_of(secret.strip()), "token")
        if cookie := request.cookies.get(COOKIE):
            principal = await self._tokens.principal(cookie)
            if principal is not None:
                return Entry(principal, "cookie")
        if self._hook is not None:
            answer = self._hook(request)
            principal = await answer if inspect.isawaitable(answer) else answer
            return None if principal is None else Entry(principal, "hook")
        if is_local(request) and not await self._is_given_out():
            return Entry(LOCAL, "loopback")
        return None

    async def _is_given_out(self) -> bool:
        """Say whether tokens exist; from the first one on everybody needs one."""
        self._given_out = self._given_out or await self._tokens.exist()
        return self._given_out


def is_local(request: Request) -> bool:
    """Say whether a request comes from this machine itself, neither forwarded nor under a foreign name.

    A proxy on this machine makes the whole world look local, and a name that an attacker points to
    127.0.0.1 makes every browser do so.
    """
    peer = request.client.host if request.client else ""
    if any(name in request.headers for name in _FORWARDED):
        return False
    return is_loopback(peer) and is_loopback(_host_name(request))


def is_loopback(host: str) -> bool:
    """Say whether a name or address means this machine only."""
    if host == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def check_bind(host: str, has_tokens: bool, has_hook: bool) -> None:
    """Refuse an address that others reach while nothing decides who may come in. Raises: UnsafeBind."""
    if not (has_tokens or has_hook or is_loopback(host)):
        raise UnsafeBind(f"{host[:60]} can be reached from elsewhere, and no token exists")


def check_site(request: Request, way: Way) -> None:
    """A browser adds cookies and its address by itself; only our own pages may make use of that."""
    if way == "token" or request.method in _SAFE_METHODS:
        return
    site = request.headers.get("sec-fetch-site")
    origin = request.headers.get("origin")
    if site is not None:
        ours = site == "same-origin"
    elif origin is not None:
        ours = urlsplit(origin).netloc == request.headers.get("host")
    else:
        # No browser leaves both out; a cookie without them is somebody's script with a stolen one.
        ours = way != "cookie"
    if not ours:
        raise CrossSite("the change was asked for by a page of another site")


def _host_name(request: Request) -> str:
    return urlsplit(f"//{request.headers.get('host', '')}").hostname or ""
