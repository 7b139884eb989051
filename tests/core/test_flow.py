"""What a job type may say about its flow, and what is refused."""

from typing import Any

import pytest

from holdfast import Busy, Fair, Limit, Ordered, Rate
from holdfast.core.codec import TypeCodec
from holdfast.core.errors import InputInvalid, InvalidName, InvalidOption
from holdfast.core.flow import Flow, flow_of
from holdfast.core.partitions import BatchRule, PartitionRule, split_partition


def flow(**options: Any) -> Flow:
    """The flow of a type with these options."""
    made = flow_of("mail", TypeCodec(dict[str, Any]), options)
    assert made is not None
    return made


def test_a_type_without_options_has_no_flow() -> None:
    assert flow_of("mail", TypeCodec(Any), {"batch": 10}) is None


def test_limits_and_rates_of_keys_and_of_all_go_together() -> None:
    made = flow(
        limits=[Limit(3, by="tenant"), Limit(50), Limit(5, name="db")],
        rates=[Rate(100, "1m", by="tenant"), Rate(7, "1s", name="db")],
        fair=Fair(by="tenant", weights={"a": 3}),
    )
    assert made.per_key == PartitionRule("mail", 3, 100, 60_000)
    assert made.shared == (PartitionRule("mail", 50), PartitionRule("@db", 5, 7, 1_000))
    assert made.weight_by_partition() == {"mail#a": 3}
    assert made.has_rate


@pytest.mark.parametrize(
    ("by", "input", "gate"),
    [
        ("tenant", '{"tenant": "a"}', "mail#a"),
        ("tenant", '{"tenant": 42}', "mail#42"),
        ("order.customer", '{"order": {"customer": "ü"}}', "mail#ü"),
        ("order.customer", '{"order": null}', "mail#"),
        ("tenant", "{}", "mail#"),
        (lambda input: input["tenant"][:1], '{"tenant": "abc"}', "mail#a"),
        (lambda input: None, "{}", "mail#"),
        ("tenant", f'{{"tenant": "{"x" * 1024}"}}', "mail#" + "x" * 1024),
    ],
)
def test_the_key_is_a_field_or_a_function_of_the_input(by: Any, input: str, gate: str) -> None:
    assert flow(limits=[Limit(1, by=by)]).partition_of(input) == gate


def test_batches_wait_in_the_line_of_their_key_or_of_the_type() -> None:
    keyed = flow(batch=10, batch_by="tenant", batch_wait="5s")
    assert (keyed.batch, keyed.per_round) == (BatchRule(10, 5_000), 10)
    assert keyed.partition_of('{"tenant": "a"}') == "mail#a"
    assert flow(batch=10, batch_wait="5s").partition_of('{"tenant": "a"}') == "mail#"
    assert flow_of("mail", TypeCodec(Any), {"batch": 10, "batch_wait": None}) is None


@pytest.mark.parametrize("tenant", ["[1]", "{}", "true", r'"\u0000"', f'"{"x" * 1025}"'])
def test_what_cannot_be_a_key_is_refused_at_the_start(tenant: str) -> None:
    with pytest.raises(InputInvalid):
        flow(limits=[Limit(1, by="tenant")]).partition_of(f'{{"tenant": {tenant}}}')


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"limits": [Limit(3, by="a")], "fair": Fair(by="b")}, "two different keys"),
        ({"limits": [Limit(3, by="a"), Limit(4, by="a")]}, "only one can apply"),
        ({"limits": [Limit(3), Limit(4)]}, "only one can apply"),
        ({"rates": [Rate(3, "1s", name="x"), Rate(4, "1m", name="x")]}, "with the name x"),
        ({"limits": [Limit(3, by="a")], "ordered": Ordered(by="a")}, "already run one at a time"),
        ({"fair": Fair(by="a"), "ordered": Ordered(by="a")}, "already take turns"),
        ({"ordered": Ordered(by="a"), "batch": 10}, "batches"),
        ({"limits": [3]}, "takes Limit"),
        ({"limits": [Rate(3, "1m")]}, r"takes Limit\(…\), not Rate.* a Rate into rates"),
        ({"batch_by": "a"}, "takes one job at a time"),
        ({"batch_wait": "5s"}, "takes one job at a time"),
        ({"batch": 10, "batch_by": "a", "fair": Fair(by="a")}, "already take turns"),
        (
            {"batch": 10, "batch_by": "a", "ordered": Ordered(by="a")},
            "cannot be handled in batches",
        ),
        ({"batch": 10, "batch_by": "a", "limits": [Limit(20, by="b")]}, "two different keys"),
        ({"batch": 10, "batch_by": "a", "limits": [Limit(9)]}, "never fits"),
        ({"batch": 10, "batch_by": "a", "rates": [Rate(9, "1s", name="x")]}, "never fits"),
        ({"batch": 10, "batch_wait": "5s", "limits": [Limit(20, by="a")]}, "add batch_by"),
        ({"batch": 10, "batch_wait": "25h"}, "cannot wait"),
        ({"batch": 10, "batch_by": "."}, "is no field"),
    ],
)
def test_what_cannot_be_combined_is_refused_with_the_reason(options: Any, reason: str) -> None:
    with pytest.raises(InvalidOption, match=reason):
        flow(**options)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Limit(0),
        lambda: Limit(True),
        lambda: Limit(10_001),
        lambda: Limit(3, by="a", name="b"),
        lambda: Limit(3, by=7),  # type: ignore[arg-type]
        lambda: Rate(0, "1m"),
        lambda: Rate(1, "1ms"),
        lambda: Rate(1, "60d"),
        lambda: Fair(by=None),  # type: ignore[arg-type]
        lambda: Fair(by="a", weights={"x": 0}),
        lambda: Ordered(by="a", on_failure="stop"),  # type: ignore[arg-type]
    ],
)
def test_numbers_and_names_out_of_range_are_refused(make: Any) -> None:
    with pytest.raises(InvalidOption):
        make()


def test_a_name_that_is_none_is_refused() -> None:
    with pytest.raises(InvalidName):
        Limit(1, name="a b")


def test_a_gate_tells_its_type_and_key() -> None:
    assert split_partition("mail.send#a#b") == ("mail.send", "a#b")
    assert split_partition("mail.send#") == ("mail.send", "")
    assert split_partition("@db") == ("db", None)


def test_busy_says_whether_it_means_the_key() -> None:
    assert Busy("1s", key=True).key
    assert not Busy("1s").key
