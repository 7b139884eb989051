"""HF07x and HF098: requests over HTTP that cannot be served as they are."""

from __future__ import annotations

from holdfast.core.errors.base import HoldfastError


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


class UnsupportedMedia(RequestError):
    """The body is not of a kind that is read here.

    Bodies are JSON in UTF-8. One that says to be something else is refused unread, for what it
    means could only be guessed.
    """

    code = "HF078"
    fix = "send `Content-Type: application/json`"


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
