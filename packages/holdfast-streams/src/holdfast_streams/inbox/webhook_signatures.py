"""Verifiers of webhooks' signatures: plain HMAC, and the formats of Stripe, GitHub and Standard Webhooks.

Each takes several secrets, so that one can be replaced while the sender still signs with the other. Values are compared
in constant time, and all secrets are tried whichever fits.
"""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from holdfast.core.duration import Duration, milliseconds
from holdfast.core.errors import InvalidOption
from holdfast_streams.errors import SignatureInvalid
from holdfast_streams.inbox.message import WebhookRequest

TOLERANCE = "5m"
"""How old or how far ahead a signed time may be."""

_ALGORITHMS = ("sha1", "sha256", "sha512")
_STANDARD_PREFIX = "whsec_"


class Verifier(Protocol):
    """Checks where a request comes from; a plain function of the request will do."""

    def __call__(self, request: WebhookRequest) -> object:
        """Raise SignatureInvalid, or return False, for a request that the sender did not sign."""


@dataclass(frozen=True, slots=True)
class HmacSignature:
    """Verifies the HMAC of the body in a header."""

    secrets: Sequence[bytes] = field(repr=False)
    name: str
    algorithm: str
    encoding: str
    prefix: str
    id_header: str | None = None

    def __call__(self, request: WebhookRequest) -> None:
        """See `Verifier`. Raises: SignatureInvalid."""
        given = _need(request, self.name)
        if not given.startswith(self.prefix):
            raise SignatureInvalid(f"{self.name} does not begin with {self.prefix!r}")
        _check_any(
            [given.removeprefix(self.prefix)],
            [
                _text(hmac.digest(secret, request.body, self.algorithm), self.encoding)
                for secret in self.secrets
            ],
            self.name,
        )

    def message_id(self, request: WebhookRequest) -> str | None:
        """Return the id that the sender gives the delivery, if its format has one."""
        return None if self.id_header is None else request.header(self.id_header)


@dataclass(frozen=True, slots=True)
class StripeSignature:
    """Verifies `Stripe-Signature`: a time, and HMACs of time and body."""

    secrets: Sequence[bytes] = field(repr=False)
    tolerance_ms: int

    def __call__(self, request: WebhookRequest) -> None:
        """See `Verifier`. Raises: SignatureInvalid."""
        parts = [each.strip().partition("=") for each in _need(request, _STRIPE).split(",")]
        times = [value for name, _, value in parts if name == "t"]
        given = [value for name, _, value in parts if name == "v1"]
        if not times or not given:
            raise SignatureInvalid(f"{_STRIPE} has no time or no v1 signature")
        _check_time(times[0], request, self.tolerance_ms)
        signed = times[0].encode() + b"." + request.body
        made = [hmac.digest(secret, signed, "sha256").hex() for secret in self.secrets]
        _check_any(given, made, _STRIPE)

    def message_id(self, request: WebhookRequest) -> str | None:
        """Return the event's id, which is signed with the body."""
        found = request.json
        return found.get("id") if isinstance(found, dict) else None


@dataclass(frozen=True, slots=True)
class StandardSignature:
    """Verifies `webhook-signature`: HMACs of id, time and body."""

    secrets: Sequence[bytes] = field(repr=False)
    tolerance_ms: int

    def __call__(self, request: WebhookRequest) -> None:
        """See `Verifier`. Raises: SignatureInvalid."""
        id, sent = _need(request, "webhook-id"), _need(request, "webhook-timestamp")
        versions = [each.partition(",") for each in _need(request, "webhook-signature").split()]
        given = [value for version, _, value in versions if version == "v1"]
        _check_time(sent, request, self.tolerance_ms)
        signed = f"{id}.{sent}.".encode() + request.body
        made = [_text(hmac.digest(secret, signed, "sha256"), "base64") for secret in self.secrets]
        _check_any(given, made, "webhook-signature")

    def message_id(self, request: WebhookRequest) -> str | None:
        """Return the message's id, which is signed."""
        return request.header("webhook-id")


def hmac_signature(
    *secrets: str | bytes,
    header: str,
    algorithm: Literal["sha1", "sha256", "sha512"] = "sha256",
    encoding: Literal["hex", "base64"] = "hex",
    prefix: str = "",
) -> HmacSignature:
    """Verify the HMAC of the body that a header has, after a prefix such as `sha256=`. Raises: InvalidOption."""
    if algorithm not in _ALGORITHMS:
        raise InvalidOption(f"{algorithm!r} is not one of {', '.join(_ALGORITHMS)}")
    if encoding not in ("hex", "base64"):
        raise InvalidOption(f"{encoding!r} is neither hex nor base64")
    return HmacSignature(_secrets(secrets), header, algorithm, encoding, prefix)


def github_signature(*secrets: str | bytes) -> HmacSignature:
    """Verify GitHub's `X-Hub-Signature-256`; the id is that of the delivery. Raises: InvalidOption.

    GitHub signs no time: what keeps out a delivery that is sent again is `dedupe` alone.
    """
    name, id = "X-Hub-Signature-256", "X-GitHub-Delivery"
    return HmacSignature(_secrets(secrets), name, "sha256", "hex", "sha256=", id)


def stripe_signature(*secrets: str | bytes, tolerance: Duration = TOLERANCE) -> StripeSignature:
    """Verify Stripe's `Stripe-Signature`, no older than `tolerance`; the id is the event's. Raises: InvalidOption."""
    return StripeSignature(_secrets(secrets), milliseconds(tolerance))


def standard_signature(*secrets: str, tolerance: Duration = TOLERANCE) -> StandardSignature:
    """Verify a signature as Standard Webhooks has it, no older than `tolerance`. Raises: InvalidOption.

    Secrets are written as the sender shows them: `whsec_` and base64.
    """
    _secrets(secrets)
    return StandardSignature([_standard_secret(each) for each in secrets], milliseconds(tolerance))


_STRIPE = "Stripe-Signature"


def _secrets(given: Sequence[str | bytes]) -> list[bytes]:
    found = [each.encode() if isinstance(each, str) else each for each in given]
    if not found or not all(found):
        raise InvalidOption(
            "a signature needs a secret, and one was empty or none was given",
            help="pass the secret that the sender shows for this endpoint",
        )
    return found


def _standard_secret(given: str) -> bytes:
    try:
        return base64.b64decode(given.removeprefix(_STANDARD_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        raise InvalidOption(
            "a secret of Standard Webhooks is not base64", help="write it as whsec_…"
        ) from None


def _need(request: WebhookRequest, name: str) -> str:
    found = request.header(name)
    if not found:
        raise SignatureInvalid(f"the request has no {name}")
    return found


def _text(digest: bytes, encoding: str) -> str:
    return digest.hex() if encoding == "hex" else base64.b64encode(digest).decode()


def _check_any(given: Iterable[str], made: Sequence[str], name: str) -> None:
    """Refuse a request none of whose signatures is one of ours."""
    matches = [
        hmac.compare_digest(one.encode("utf-8", "replace"), other.encode())
        for one in given
        for other in made
    ]
    if not any(matches):
        raise SignatureInvalid(f"{name} does not fit the body under any of our secrets")


def _check_time(sent: str, request: WebhookRequest, tolerance_ms: int) -> None:
    """Refuse a request that was signed too long ago, or in the future: it may have been sent before."""
    if not (sent.isascii() and sent.isdigit() and len(sent) < 15):
        raise SignatureInvalid("the signed time is not a number of seconds")
    away_ms = abs(request.received_us // 1000 - int(sent) * 1000)
    if away_ms > tolerance_ms:
        raise SignatureInvalid(
            f"the request was signed {away_ms // 1000} s away from now, at most {tolerance_ms // 1000} s are accepted"
        )
