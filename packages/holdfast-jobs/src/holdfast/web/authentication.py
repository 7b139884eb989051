"""Authentication: by token, by cookie, by the host application's hook, or by a connection from this machine."""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Literal
from urllib.parse import urlsplit

from starlette.requests import Request

from holdfast.admin.access import LOCAL, TOKEN_PREFIX, Principal, TokenAdmin, hash_of
from holdfast.core.errors import CrossSite, Unauthenticated, UnsafeBind

COOKIE = "holdfast"

AuthMethod = Literal["token", "cookie", "hook", "loopback"]

Hook = Callable[[Request], "Principal | Awaitable[Principal | None] | None"]
"""The host application's own authentication: the request's principal, or None if it has none."""

_FORWARDED = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip", "via")
_SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
# Nothing but a name or address and a port: parsers of URLs also take a user, a path or a zone.
_HOST = re.compile(
    r"(localhost|[\d.]+|\[[\da-f:.]*:[\da-f:.]*\])(?::\d{1,5})?", re.ASCII | re.IGNORECASE
)
_MAX_REMEMBERED = 100


@dataclass(frozen=True, slots=True)
class Authentication:
    """A request's principal and how it was established."""

    principal: Principal
    method: AuthMethod


class Authenticator:
    """Establishes a request's principal; it fails closed."""

    def __init__(self, tokens: TokenAdmin, hook: Hook | None = None) -> None:
        self._tokens = tokens
        self._hook = hook
        self._has_tokens = False
        self._remembered: dict[str, Principal] = {}

    async def authenticate(self, request: Request) -> Authentication:
        """Return the principal of a request. Raises: Unauthenticated, CrossSite."""
        found = await self._find_principal(request)
        if found is None:
            raise Unauthenticated("the request has no valid token")
        check_same_origin(request, found.method)
        return found

    def recall(self, request: Request) -> Principal | None:
        """Return who a request would be by what this process knows, for what it may show without the database.

        A token counts if it was valid when last seen. Without one, requests from this machine count, unless tokens
        are known to exist.
        """
        if secret := _bearer(request):
            return self._remembered.get(hash_of(secret))
        return LOCAL if is_local(request) and not self._has_tokens and self._hook is None else None

    async def principal_of(self, secret: str) -> Principal:
        """Return the principal of a token's secret. Raises: Unauthenticated."""
        principal = await self._tokens.principal(secret)
        if principal is None:
            self._remembered.pop(hash_of(secret), None)
            raise Unauthenticated("the token is invalid or expired")
        if len(self._remembered) < _MAX_REMEMBERED:
            self._remembered[hash_of(secret)] = principal
        return principal

    async def _find_principal(self, request: Request) -> Authentication | None:
        secret = _bearer(request)
        if secret is not None and (secret.startswith(TOKEN_PREFIX) or self._hook is None):
            return Authentication(await self.principal_of(secret), "token")
        if cookie := request.cookies.get(COOKIE):
            principal = await self._tokens.principal(cookie)
            if principal is not None:
                return Authentication(principal, "cookie")
        if self._hook is not None:
            answer = self._hook(request)
            principal = await answer if inspect.isawaitable(answer) else answer
            return None if principal is None else Authentication(principal, "hook")
        if is_local(request) and not await self._tokens_exist():
            return Authentication(LOCAL, "loopback")
        return None

    async def _tokens_exist(self) -> bool:
        """Whether any token was created; from then on every request needs one."""
        self._has_tokens = self._has_tokens or await self._tokens.exist()
        return self._has_tokens


def is_local(request: Request) -> bool:
    """Whether a request comes from this machine itself, neither forwarded nor under a foreign name.

    A proxy on this machine makes the whole world look local, and a name that an attacker points to
    127.0.0.1 makes every browser do so.
    """
    peer = request.client.host if request.client else ""
    if any(name in request.headers for name in _FORWARDED):
        return False
    # Of several names, the comma makes one that does not match.
    name = _HOST.fullmatch(",".join(request.headers.getlist("host")))
    return is_loopback(peer) and name is not None and is_loopback(name[1].lower())


def is_loopback(host: str) -> bool:
    """Whether a name or address means this machine only."""
    if host == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def check_bind(host: str, has_tokens: bool, has_hook: bool) -> None:
    """Refuse a public address while there is no authentication. Raises: UnsafeBind."""
    if not (has_tokens or has_hook or is_loopback(host)):
        raise UnsafeBind(f"{host[:60]} can be reached from other machines, and no token exists")


def check_same_origin(request: Request, method: AuthMethod) -> None:
    """Refuse a change from another site's page: browsers add cookies by themselves. Raises: CrossSite."""
    if method == "token" or request.method in _SAFE_METHODS:
        return
    site = request.headers.get("sec-fetch-site")
    origin = request.headers.get("origin")
    if site is not None:
        is_ours = site == "same-origin"
    elif origin is not None:
        is_ours = urlsplit(origin).netloc == request.headers.get("host")
    else:
        # No browser leaves both out; a cookie without them is a script with a stolen one.
        is_ours = method != "cookie"
    if not is_ours:
        raise CrossSite("the request comes from a page of another site")


def _bearer(request: Request) -> str | None:
    scheme, _, secret = request.headers.get("authorization", "").partition(" ")
    return secret.strip() if scheme.lower() == "bearer" else None
