"""Limits that count what jobs cost: declared, refused, settled by handlers, and seen by people."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from holdfast import Fair, Holdfast, Job, Limit, Ordered, Rate
from holdfast.core.codec import TypeCodec
from holdfast.core.errors import InvalidOption
from holdfast.core.flow import flow_of
from holdfast_costs.errors import CostConflict, CostInvalid, CostTooLarge
from holdfast_testing.kit import Kit


class Question(msgspec.Struct):
    """What a model is asked."""

    model: str
    tokens: Any = 0


class CostScene:
    """An application with a type whose jobs cost tokens; what ran is in `ran`."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.app = Holdfast(url)
        self.kit = Kit(self.app, url)
        self.ran: list[int] = []

    def ask(self, spends: int | None = None, name: str = "ask", **options: Any) -> None:
        """Register a handler that says what it spent, if anything."""
        limits: dict[str, Any] = {"rates": [Rate(100, "1m", by="model", cost="tokens")]}

        @self.app.job(name, **options or limits)
        def handle(job: Job[Question]) -> None:
            self.ran.append(job.input.tokens)
            if spends is not None:
                job.spent(spends)

    def start(self, *tokens: Any, name: str = "ask", **options: Any) -> list[Any]:
        found = []
        with self.app.transaction() as tx:
            for each in tokens:
                found.append(self.app.start(tx, name, Question("gpt", each), **options))
        return found

    def run(self) -> list[int]:
        """Run what may run now; return what it was to cost."""
        self.ran.clear()
        self.kit.run_until_idle()
        return list(self.ran)

    def close(self) -> None:
        self.kit.close()
        self.app.close()


@pytest.fixture(params=["postgres", "sqlite"])
def scene(request: pytest.FixtureRequest) -> Iterator[CostScene]:
    """An application on either database."""
    scene = CostScene(request.getfixturevalue(f"{request.param}_url"))
    yield scene
    scene.close()


def test_jobs_start_in_order_as_far_as_a_rate_has_room_for_their_costs(scene: CostScene) -> None:
    scene.ask()
    scene.start(60, 50, 1)
    assert scene.run() == [60]
    scene.kit.advance("61s")
    assert scene.run() == [50, 1]


def test_what_a_handler_did_not_spend_is_given_back(scene: CostScene) -> None:
    scene.ask(spends=10)
    scene.start(60, 60, 60)
    assert scene.run() == [60, 60, 60]


def test_what_a_handler_spent_beyond_keeps_others_waiting(scene: CostScene) -> None:
    scene.ask(spends=150)
    scene.start(10)
    assert scene.run() == [10]
    scene.start(1)
    assert scene.run() == []
    scene.kit.advance("61s")
    assert scene.run() == [1]


def test_a_handler_that_failed_before_it_used_anything_says_so(scene: CostScene) -> None:
    @scene.app.job("ask", rates=[Rate(100, "1m", by="model", cost="tokens")])
    async def handle(job: Job[Question]) -> None:
        scene.ran.append(job.attempt)
        if job.attempt == 1:
            await job.spent(0)
            raise ConnectionError("refused before anything was sent")

    scene.start(80)
    scene.kit.run_until_idle()
    scene.kit.advance("30s")
    scene.kit.run_until_idle()
    assert scene.ran == [1, 2]


def test_a_limit_counts_what_running_jobs_cost(scene: CostScene) -> None:
    running: list[int] = []
    most: list[int] = []

    @scene.app.job("render", limits=[Limit(10, cost=lambda input: input.tokens)])
    async def render(job: Job[Question]) -> None:
        running.append(job.input.tokens)
        most.append(sum(running))
        await asyncio.sleep(0.02)
        running.remove(job.input.tokens)

    scene.start(4, 4, 4, 2, 0, 10, name="render")
    scene.kit.run_until_idle()
    assert len(most) == 6
    assert 8 <= max(most) <= 10


@pytest.mark.parametrize("tokens", [None, -1, 1.5, "9", True])
def test_a_job_that_does_not_say_what_it_costs_is_refused(scene: CostScene, tokens: Any) -> None:
    scene.ask()
    with pytest.raises(CostInvalid, match="counts what jobs cost") as refused:
        scene.start(tokens)
    assert refused.value.code == "HF204"


def test_a_job_that_never_fits_is_refused(scene: CostScene) -> None:
    scene.ask()
    with pytest.raises(CostTooLarge, match="101 never fits into 100") as refused:
        scene.start(101)
    assert refused.value.code == "HF205"


def test_spending_without_a_rate_of_costs_is_refused(scene: CostScene) -> None:
    refused: list[str] = []

    @scene.app.job("plain")
    def plain(job: Job[Question]) -> None:
        with pytest.raises(CostConflict) as found:
            job.spent(3)
        refused.append(found.value.code)

    scene.start(1, name="plain")
    scene.kit.run_until_idle()
    assert refused == ["HF209"]


@pytest.mark.parametrize("spent", [-1, 1.5, True, "3"])
def test_spending_what_is_no_cost_is_refused(scene: CostScene, spent: Any) -> None:
    refused: list[str] = []

    @scene.app.job("ask", rates=[Rate(100, "1m", cost="tokens")])
    def handle(job: Job[Question]) -> None:
        with pytest.raises(CostConflict) as found:
            job.spent(spent)
        refused.append(found.value.code)

    scene.start(1)
    scene.kit.run_until_idle()
    assert refused == ["HF209"]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"rates": [Rate(9, "1m", cost="a"), Rate(9, "1h", cost="a")]}, "only one can apply"),
        ({"rates": [Rate(9, "1m", cost="a")], "limits": [Limit(9, cost="b")]}, "two different"),
        (
            {"limits": [Limit(9, by="a", cost="b")], "ordered": Ordered(by="a")},
            "already run one at a time",
        ),
    ],
)
def test_what_cannot_be_combined_is_refused(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidOption, match=reason):
        flow_of("ask", TypeCodec(Any, "input"), options)


@pytest.mark.parametrize(
    "options",
    [
        {"rates": [Rate(9, "1m"), Rate(90, "1m", cost="a")]},
        {"rates": [Rate(90, "1m", by="b", cost="a")], "fair": Fair(by="b")},
        {"rates": [Rate(90, "1m", by="b", cost="a")], "ordered": Ordered(by="b")},
        {"rates": [Rate(3, "1m", cost="a")], "batch": 10, "batch_by": "b"},
    ],
)
def test_what_goes_together_is_accepted(options: dict[str, Any]) -> None:
    flow = flow_of("ask", TypeCodec(Any, "input"), options)
    assert flow is not None
    assert flow.cost == "a"


@pytest.mark.parametrize("cost", ["", ".", 3])
def test_a_cost_that_is_no_field_is_refused(cost: Any) -> None:
    with pytest.raises(InvalidOption, match="cost="):
        Rate(9, "1m", cost=cost)


def test_numbers_of_costs_may_be_large() -> None:
    assert Rate(30_000_000, "1m", cost="a").max == 30_000_000
    with pytest.raises(InvalidOption, match="1000000000"):
        Limit(1_000_000_001, cost="a")
