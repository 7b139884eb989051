"""HF015, HF07x and HF09x: who may come in, and requests over HTTP that cannot be served as they are."""

from __future__ import annotations

from holdfast.core.errors.base import HoldfastError
from holdfast.core.errors.configuration import ConfigError


class UnsafeBind(ConfigError):
    """The address can be reached by others, and nothing decides who may come in.

    Without tokens and without a hook of the host application everybody who reaches the API may do
    everything, so it is served on this machine's own address only.
    """

    code = "HF015"
    fix = "make a token with `holdfast token create`, or serve on 127.0.0.1"


class RequestError(HoldfastError):
    """A request over HTTP cannot be served as it is."""


class BadRequest(RequestError):
    """The request cannot be understood.

    Parameters, headers and JSON bodies are checked before anything is done; one that is missing,
    unknown or of the wrong form is refused with its name.
    """

    code = "HF074"
    fix = "see the OpenAPI document at /api/v1/openapi.json"


class BodyTooLarge(RequestError):
    """The body of the request is too large.

    Requests are read into memory, so their size is bounded before they are read.
    """

    code = "HF075"
    fix = "send less, or raise the limit where the API is made"


class Changed(RequestError):
    """The thing has changed since it was read.

    A write that names the version it was decided on (If-Match) is made only while that version
    stands, so that nobody undoes what they have not seen.
    """

    code = "HF076"
    fix = "read it again, and decide on what it is now"


class NoSuchRoute(RequestError):
    """There is nothing under this address.

    The path or the method is not one that the API serves.
    """

    code = "HF077"
    fix = "see the OpenAPI document at /api/v1/openapi.json"


class UnsupportedMedia(RequestError):
    """The body is not of a kind that is read here.

    Bodies are JSON in UTF-8. One that says to be something else is refused unread, for what it
    means could only be guessed.
    """

    code = "HF078"
    fix = "send `Content-Type: application/json`"


class Unauthenticated(HoldfastError):
    """It is not known who asks.

    The request carries no token, or one that does not exist, has expired or was revoked; which of
    these it is stays untold.
    """

    code = "HF095"
    fix = "send `Authorization: Bearer <token>`; `holdfast token create` makes one"


class CrossSite(HoldfastError):
    """The request came from a page of another site.

    A browser sends cookies along wherever a form is, so changes that rely on them are accepted from
    the dashboard's own pages only.
    """

    code = "HF096"
    fix = "make the change on the dashboard itself, or send a token as `Authorization: Bearer`"


class TokenNotFound(HoldfastError):
    """There is no such token.

    Tokens are named by their id, never by their secret, which is nowhere to be found after it was
    shown once.
    """

    code = "HF097"
    fix = "copy the id from `holdfast token list`"


class RateLimited(HoldfastError):
    """The same was asked for too often.

    Asking for a tick by hand costs the database as much as the tick does, so it is bounded.
    """

    code = "HF098"
    fix = "wait for as long as Retry-After says"
    retryable = True

    def __init__(self, message: str, after_s: int = 1) -> None:
        """Say as well in how many seconds it may be asked for again."""
        super().__init__(message)
        self.after_s = after_s
