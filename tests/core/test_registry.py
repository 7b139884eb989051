"""The registry: names are unique and plain, and whoever asks for a wrong one hears of the nearest."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar, Unpack

import pytest

from holdfast.core.codec import TypeCodec
from holdfast.core.errors import (
    DuplicateJobType,
    HandlerInvalid,
    InvalidName,
    InvalidOption,
    UnknownJobType,
)
from holdfast.core.lease import Lease
from holdfast.core.outcome import Continue
from holdfast.core.registry import (
    JobType,
    Registry,
    TypeOptions,
    check_name,
    delivery_name,
    job_type_of,
)
from holdfast.core.retry import Retry

T = TypeVar("T")


class Work(Generic[T]):
    """Stands for the class that handlers annotate."""


@dataclass
class Order:
    id: int


def charge(job: Work[Order]) -> str | Continue:
    return "paid"


async def ship(job: Work[Order]) -> None:
    return None


def ship_all(jobs: list[Work[Order]]) -> None:
    return None


def made(
    handler: Callable[..., Any], name: str = "order.charge", **options: Unpack[TypeOptions]
) -> JobType:
    return job_type_of(handler, name, Work, options)


def declared(name: str, **fields: Any) -> JobType:
    plain = TypeCodec(Any)
    return JobType(name=name, handler=None, input=plain, output=plain, **fields)


def test_a_type_is_found_by_its_name_and_by_its_handler() -> None:
    registry = Registry()
    job_type = registry.add(made(charge))
    assert registry.get("order.charge") is registry.get(charge) is job_type
    assert "order.charge" in registry
    assert list(registry) == [job_type]
    assert len(registry) == 1


def test_a_method_is_found_though_every_access_makes_a_new_object() -> None:
    class Shop:
        def charge(self, job: Work[Order]) -> None: ...

    shop, registry = Shop(), Registry()
    registry.add(made(shop.charge))
    assert registry.find(shop.charge) is not None
    assert registry.find(Shop().charge) is None


def test_a_handler_that_cannot_be_hashed_is_still_found_by_name() -> None:
    class Handler(list[int]):
        def __call__(self, job: Work[Order]) -> None: ...

    registry, handler = Registry(), Handler()
    registry.add(made(handler))
    assert registry.get("order.charge").handler is not None
    with pytest.raises(UnknownJobType):
        registry.get(handler)


def test_a_second_type_of_the_same_name_is_refused() -> None:
    registry = Registry()
    registry.add(made(charge))
    with pytest.raises(DuplicateJobType, match=r"order\.charge is already registered"):
        registry.add(made(ship))


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    registry = Registry()
    registry.add(made(charge))
    with pytest.raises(UnknownJobType, match=r"did you mean order\.charge\?"):
        registry.get("order.chrage")
    assert registry.find("order.chrage") is None


def test_an_unregistered_function_is_refused_by_its_name() -> None:
    with pytest.raises(UnknownJobType, match="ship is not a registered handler"):
        Registry().get(ship)


def test_a_handler_of_several_types_has_to_be_started_by_name() -> None:
    registry = Registry()
    registry.add(made(charge, "order.charge"))
    registry.add(made(charge, "order.recharge"))
    with pytest.raises(UnknownJobType, match=r"several job types: order\.charge, order\.recharge"):
        registry.get(charge)


def test_a_declared_type_is_no_answer_to_a_missing_handler() -> None:
    registry = Registry()
    registry.add(declared("order.charge"))
    with pytest.raises(UnknownJobType):
        registry.get(None)  # type: ignore[arg-type]


def test_the_types_of_an_event_are_found() -> None:
    registry = Registry()
    registry.add(declared("order.placed/mail", event="order.placed"))
    registry.add(declared("order.placed/stock", event="order.placed"))
    registry.add(declared("order.paid/mail", event="order.paid"))
    names = [each.name for each in registry.of_event("order.placed")]
    assert names == ["order.placed/mail", "order.placed/stock"]


@pytest.mark.parametrize(
    "options", [TypeOptions(continues_to=["order.ship"]), TypeOptions(waits_for=["order.ship"])]
)
def test_declared_neighbours_have_to_be_registered(options: TypeOptions) -> None:
    registry = Registry()
    registry.add(made(charge, **options))
    with pytest.raises(UnknownJobType, match=r"unknown 'order\.ship'"):
        registry.check()
    registry.add(declared("order.ship"))
    registry.check()


@pytest.mark.parametrize(
    "name", ["a", "order.charge", "order-charge_2", "tenant:mail", "pedido.añadido", "x" * 200]
)
def test_plain_names_are_accepted(name: str) -> None:
    assert check_name(name) == name


@pytest.mark.parametrize(
    "name", ["", "a b", "a/b", "mail.*", 'a"b', "a,b", "a\x00b", "\ud800", "x" * 201, ".a", None, 7]
)
def test_names_that_would_be_misread_are_refused(name: object) -> None:
    with pytest.raises(InvalidName, match="HF027"):
        check_name(name)


def test_a_delivery_is_named_after_event_and_handler() -> None:
    assert delivery_name("order.placed", "mail") == "order.placed/mail"
    with pytest.raises(InvalidName):
        delivery_name("order.placed", "<lambda>")


def test_annotations_and_options_make_the_type() -> None:
    retry = Retry(max_attempts=5)
    job_type = made(
        charge, retry=retry, lease="30s", timeout="2m", concurrency=2, continues_to=["order.ship"]
    )
    assert (job_type.input.name, job_type.output.name) == ("Order", "str")
    assert job_type.retry is retry
    assert job_type.lease == Lease("30s")
    assert (job_type.timeout_ms, job_type.concurrency) == (120_000, 2)
    assert job_type.continues_to == ("order.ship",)


def test_what_is_left_out_is_the_default_of_its_kind() -> None:
    plain = made(charge)
    assert plain.retry is None
    assert (plain.lease, plain.timeout_ms, plain.concurrency, plain.batch) == (None,) * 4
    assert not plain.atomic
    assert plain.entry
    event = job_type_of(charge, "order.placed/charge", Work, TypeOptions(), event="order.placed")
    assert event.retry is None


def test_a_type_without_a_sealer_is_not_compared_with_a_protocol(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plain = made(charge)
    monkeypatch.delattr("holdfast.core.registry.PayloadStore")
    assert plain.payloads is None


def test_an_async_handler_runs_on_the_loop_and_a_sync_one_in_a_thread() -> None:
    class Handler:
        async def __call__(self, job: Work[Order]) -> None: ...

    assert made(ship).executor == "loop"
    assert made(partial(ship)).executor == "loop"
    assert made(Handler()).executor == "loop"
    assert made(charge).executor == "thread"
    assert made(charge, executor="process").executor == "process"


@pytest.mark.parametrize(
    ("handler", "options"),
    [
        (charge, TypeOptions(executor="loop")),
        (ship, TypeOptions(executor="thread")),
        (charge, TypeOptions(executor="process", atomic=True)),
        (charge, TypeOptions(concurrency=0)),
        (charge, TypeOptions(timeout="0s")),
        (ship_all, TypeOptions(batch=0)),
    ],
)
def test_options_that_cannot_work_are_refused(
    handler: Callable[..., Any], options: TypeOptions
) -> None:
    with pytest.raises(InvalidOption):
        made(handler, **options)


@pytest.mark.parametrize(
    ("options", "help"),
    [
        ({"leese": "5s"}, "did you mean lease?"),
        ({"max_attempts": 5}, "retry=Retry(max_attempts=…)"),
        ({"queue": "fast"}, "there are retry, lease"),
        ({"retry": 5}, "give it Retry"),
        ({"concurrency": "2"}, "give it int"),
        ({"concurrency": True}, "give it int"),
        ({"atomic": "yes"}, "give it bool"),
        ({"continues_to": "order.ship"}, "give it list or tuple"),
    ],
    ids=str,
)
def test_an_option_that_nobody_would_heed_is_refused(options: Any, help: str) -> None:
    with pytest.raises(InvalidOption) as caught:
        made(charge, **options)
    assert help in caught.value.help


def counting(job: Work[Order]) -> Iterator[int]:
    yield 1


async def streaming(job: Work[Order]) -> AsyncIterator[int]:
    yield 1


class Counting:
    def __call__(self, job: Work[Order]) -> Iterator[int]:
        yield 1


@pytest.mark.parametrize(
    "handler",
    [counting, streaming, partial(counting), Counting()],
    ids=["function", "coroutine", "partial", "object"],
)
def test_a_handler_that_yields_is_refused(handler: Callable[..., Any]) -> None:
    with pytest.raises(HandlerInvalid, match="generator"):
        made(handler)


def test_a_handler_of_lists_needs_a_batch() -> None:
    assert made(ship_all, batch=50).batch == 50
    with pytest.raises(HandlerInvalid, match="sets no batch"):
        made(ship_all)


def test_on_failed_is_a_function() -> None:
    assert made(charge, on_failed=print).on_failed is print
    with pytest.raises(InvalidOption, match="on_failed"):
        made(charge, on_failed="note")  # type: ignore[arg-type]
