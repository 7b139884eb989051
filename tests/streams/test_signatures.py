"""Signatures of webhooks, by the published vectors of their formats, and what is refused."""

from __future__ import annotations

import base64
import hmac
from typing import Any

import pytest

from holdfast.core.errors import InvalidOption
from holdfast_streams import (
    WebhookRequest,
    github_signature,
    hmac_signature,
    standard_signature,
    stripe_signature,
)
from holdfast_streams.errors import SignatureInvalid

NOW_S = 1_614_265_330
STANDARD = {
    "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
    "webhook-timestamp": str(NOW_S),
    "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
}
STANDARD_BODY = b'{"test": 2432232314}'
STANDARD_SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
GITHUB_SECRET = "It's a Secret to Everybody"
GITHUB = {
    "X-Hub-Signature-256": "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17",
    "X-GitHub-Delivery": "72d3162e",
}


def request(headers: dict[str, str], body: bytes, now_s: int = NOW_S) -> WebhookRequest:
    return WebhookRequest(headers, body, now_s * 1_000_000)


def stripe_header(secret: str, body: bytes, sent_s: int = NOW_S) -> dict[str, str]:
    """What Stripe sends: the time, a signature, and one of an older scheme."""
    made = hmac.digest(secret.encode(), f"{sent_s}.".encode() + body, "sha256").hex()
    return {"Stripe-Signature": f"t={sent_s},v1={'0' * 64},v1={made},v0=6ffbb59b"}


def test_a_plain_hmac_is_that_of_rfc_4231() -> None:
    expected = "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
    body = b"what do ya want for nothing?"
    verify = hmac_signature("Jefe", header="X-Signature")
    verify(request({"x-signature": expected}, body))
    in_base64 = base64.b64encode(bytes.fromhex(expected)).decode()
    other = hmac_signature("Jefe", header="X-Signature", encoding="base64", prefix="v=")
    other(request({"X-Signature": f"v={in_base64}"}, body))
    long = (
        "164b7a7bfcf819e2e395fbe73b56e0a387bd64222e831fd610270cd7ea250554"
        "9758bf75c05a994a6d034f65f8f0e6fdcaeab1a34d4a6b4b636e070a38bce737"
    )
    hmac_signature("Jefe", header="S", algorithm="sha512")(request({"s": long}, body))


def test_github_s_signature_is_that_of_its_documentation() -> None:
    verify = github_signature(GITHUB_SECRET)
    sent = request(GITHUB, b"Hello, World!")
    verify(sent)
    assert verify.message_id(sent) == "72d3162e"


def test_a_standard_webhook_is_that_of_the_specification() -> None:
    verify = standard_signature(STANDARD_SECRET)
    sent = request(STANDARD, STANDARD_BODY)
    verify(sent)
    assert verify.message_id(sent) == "msg_p5jXN8AQM9LWM0D4loKWxJek"
    several = f"v1a,xyz v1,bm9ldHU= {STANDARD['webhook-signature']}"
    verify(request({**STANDARD, "webhook-signature": several}, STANDARD_BODY))


def test_stripe_signs_time_and_body() -> None:
    body = b'{"id": "evt_1"}'
    verify = stripe_signature("whsec_abc")
    sent = request(stripe_header("whsec_abc", body), body)
    verify(sent)
    assert verify.message_id(sent) == "evt_1"


def test_while_a_secret_is_replaced_both_are_accepted() -> None:
    body = b'{"id": "evt_1"}'
    verify = stripe_signature("whsec_old", "whsec_new")
    for secret in ("whsec_old", "whsec_new"):
        verify(request(stripe_header(secret, body), body))
    github_signature("another", GITHUB_SECRET)(request(GITHUB, b"Hello, World!"))
    standard_signature("whsec_b3RoZXI=", STANDARD_SECRET)(request(STANDARD, STANDARD_BODY))


@pytest.mark.parametrize("away_s", [301, -301])
def test_what_was_signed_too_long_ago_or_in_the_future_is_refused(away_s: int) -> None:
    with pytest.raises(SignatureInvalid, match="301 s away"):
        standard_signature(STANDARD_SECRET)(request(STANDARD, STANDARD_BODY, NOW_S + away_s))
    header = stripe_header("s", b"{}", NOW_S)
    with pytest.raises(SignatureInvalid, match="301 s away"):
        stripe_signature("s")(request(header, b"{}", NOW_S + away_s))
    stripe_signature("s", tolerance="1h")(request(header, b"{}", NOW_S + away_s))


@pytest.mark.parametrize(
    ("verify", "headers", "body"),
    [
        (github_signature("other"), GITHUB, b"Hello, World!"),
        (github_signature(GITHUB_SECRET), GITHUB, b"Hello, World?"),
        (github_signature(GITHUB_SECRET), {}, b"Hello, World!"),
        (github_signature(GITHUB_SECRET), {"X-Hub-Signature-256": "sha1=7571"}, b""),
        (github_signature(GITHUB_SECRET), {"X-Hub-Signature-256": "sha256=\xe9\ud800"}, b""),
        (standard_signature(STANDARD_SECRET), STANDARD, STANDARD_BODY + b" "),
        (
            standard_signature(STANDARD_SECRET),
            {**STANDARD, "webhook-id": "msg_other"},
            STANDARD_BODY,
        ),
        (
            standard_signature(STANDARD_SECRET),
            {**STANDARD, "webhook-timestamp": "٣"},
            STANDARD_BODY,
        ),
        (
            standard_signature(STANDARD_SECRET),
            {**STANDARD, "webhook-signature": STANDARD["webhook-signature"].replace("v1", "v2")},
            STANDARD_BODY,
        ),
        (stripe_signature("s"), {"Stripe-Signature": "t=1,v0=abc"}, b"{}"),
        (stripe_signature("s"), {"Stripe-Signature": "nonsense"}, b"{}"),
        (stripe_signature("s"), stripe_header("other", b"{}"), b"{}"),
    ],
)
def test_anything_else_is_refused(verify: Any, headers: dict[str, str], body: bytes) -> None:
    with pytest.raises(SignatureInvalid):
        verify(request(headers, body))


def test_verifiers_need_secrets_and_show_none() -> None:
    for make in (github_signature, stripe_signature, standard_signature):
        with pytest.raises(InvalidOption):
            make()
        with pytest.raises(InvalidOption):
            make("")
    with pytest.raises(InvalidOption, match="base64"):
        standard_signature("whsec_???")
    with pytest.raises(InvalidOption):
        hmac_signature("s", header="h", algorithm="md5")  # type: ignore[arg-type]
    assert "hidden" not in repr([github_signature("hidden"), stripe_signature("hidden")])
