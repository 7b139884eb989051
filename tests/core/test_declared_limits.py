"""What job types declare about their limits, in words and for each partition."""

from typing import Any

import pytest

from holdfast import Fair, Limit, Ordered, Rate
from holdfast.core.codec import TypeCodec
from holdfast.core.declared_limits import declared_by, encode_declared
from holdfast.core.flow import Flow, flow_of
from holdfast.core.partitions import LimitSetting, by_id


def flow(**options: Any) -> Flow:
    found = flow_of("mail.send", TypeCodec(Any, "input"), options)
    assert found is not None
    return found


def tenant(input: Any) -> str:
    return str(input["tenant"])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"limits": [Limit(3, by="tenant_id")]}, "3 per tenant_id"),
        ({"limits": [Limit(3, by=tenant), Limit(50)]}, "3 per tenant · 50 in total"),
        ({"rates": [Rate(100, "1m", by=lambda input: input)]}, "100/1m per key"),
        ({"rates": [Rate(60, "90s", name="openai")]}, "60/1m30s for openai"),
        ({"ordered": Ordered(by="order_id")}, "in order per order_id"),
        ({"fair": Fair(by="tenant_id")}, "fair by tenant_id"),
        (
            {"batch": 100, "batch_by": "tenant_id", "batch_wait": "20s"},
            "batches of 100 per tenant_id within 20s",
        ),
        ({"batch": 100, "batch_wait": "5s"}, "batches of 100 within 5s"),
        (
            {"batch": 10, "batch_by": "a", "limits": [Limit(30, by="a")]},
            "30 per a · batches of 10 per a",
        ),
        (
            {"limits": [Limit(3, by="a")], "fair": Fair(by="a", weights={"big": 3})},
            "3 per a · fair by a",
        ),
    ],
)
def test_limits_are_told_in_a_line(options: dict[str, Any], words: str) -> None:
    assert declared_by(flow(**options)).words == words


def test_what_was_set_for_a_key_wins_over_all_keys_and_that_over_the_code() -> None:
    declared = declared_by(
        flow(limits=[Limit(3, by="t"), Limit(50)], rates=[Rate(9, "1s", by="t")])
    )
    settings = by_id(
        [
            LimitSetting("*mail.send", allowed=5),
            LimitSetting("mail.send#42", rate=1, period_ms=2_000),
        ]
    )
    own = declared.rule("mail.send#42", settings)
    assert (own.allowed, own.rate, own.period_ms) == (5, 1, 2_000)
    other = declared.rule("mail.send#7", settings)
    assert (other.allowed, other.rate, other.period_ms) == (5, 9, 1_000)
    total = declared.rule("mail.send", settings)
    assert (total.allowed, total.rate) == (50, None)


def test_a_sign_tells_no_code() -> None:
    text = encode_declared([flow(limits=[Limit(3, by=tenant)])])
    assert '"by":"tenant"' in text
    assert "function" not in text
