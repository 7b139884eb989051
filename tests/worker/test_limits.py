"""Limits over the whole fleet, as workers keep them: who runs beside whom, in which turn, and in which order."""

import asyncio
from collections import Counter, defaultdict
from typing import Any, Unpack

import pytest

from holdfast import Busy, Fair, Limit, Ordered, Permanent, Rate
from holdfast.commands.attempts import reap_leases
from holdfast.core.partitions import every_key
from holdfast.core.registry import JobType, TypeOptions, job_type_of
from holdfast.core.retry import Retry
from holdfast.notify.base import Hint
from holdfast.worker.job import Job
from tests.support.until import until
from tests.worker.workshop import Workshop

KEYS = ("a", "b", "c")


class CrowdByKey:
    """A handler that counts how many of each key run at once, and waits for a word."""

    def __init__(self) -> None:
        self.now: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.most_in_total = 0
        self.order: list[Any] = []
        self.go = asyncio.Event()

    async def __call__(self, job: Job[dict[str, Any]]) -> None:
        key = job.input["tenant"]
        self.now[key] += 1
        self.most[key] = max(self.most[key], self.now[key])
        self.most_in_total = max(self.most_in_total, self.now.total())
        self.order.append((key, job.input.get("n")))
        await self.go.wait()
        self.now[key] -= 1


class Starts:
    """A handler that notes when its jobs were claimed, by the database's clock."""

    def __init__(self) -> None:
        self.at: list[int] = []

    async def __call__(self, job: Job[Any]) -> None:
        # A fence ends in the milliseconds of the claim.
        self.at.append(job.fence & ((1 << 42) - 1))

    def most_within(self, ms: int) -> int:
        """The most starts in any window of this length."""
        return max(sum(first <= each < first + ms for each in self.at) for first in self.at)


async def start(workshop: Workshop, type: str, tenant: str | None, count: int = 1) -> list[str]:
    """Start jobs of a tenant as an application does: in their line."""
    flow = workshop.types[type].flow
    assert flow is not None
    gate = flow.partition_of('{"tenant": null}' if tenant is None else f'{{"tenant": "{tenant}"}}')
    ordered = flow.ordered is not None
    return await workshop.start(type, {"tenant": tenant}, count, gate=gate, ordered=ordered)


async def test_two_workers_run_no_more_of_a_key_than_allowed(workshop: Workshop) -> None:
    crowd = CrowdByKey()
    workshop.handle("mail", crowd, limits=[Limit(2, by="tenant")])
    for key in KEYS:
        await start(workshop, "mail", key, 5)
    async with workshop.working(slots=10), workshop.working(slots=10):
        await until(lambda: crowd.now == dict.fromkeys(KEYS, 2))
        crowd.go.set()
        await workshop.events.seen("job_completed", count=15)
    assert crowd.most == dict.fromkeys(KEYS, 2)


async def test_a_limit_of_all_and_one_of_each_key_hold_together(workshop: Workshop) -> None:
    crowd = CrowdByKey()
    workshop.handle("mail", crowd, limits=[Limit(2, by="tenant"), Limit(3)])
    for key in KEYS:
        await start(workshop, "mail", key, 3)
    async with workshop.working(slots=10), workshop.working(slots=10):
        await until(lambda: crowd.now.total() == 3)
        crowd.go.set()
        await workshop.events.seen("job_completed", count=9)
    assert max(crowd.most.values()) <= 2
    assert crowd.most_in_total == 3


async def test_types_share_a_limit_by_its_name(workshop: Workshop) -> None:
    crowd = CrowdByKey()
    workshop.handle("ask", crowd, limits=[Limit(2, name="model")])
    workshop.handle("tell", crowd, limits=[Limit(2, name="model")])
    await start(workshop, "ask", "a", 4)
    await start(workshop, "tell", "a", 4)
    async with workshop.working(slots=10):
        await until(lambda: crowd.now["a"] == 2)
        crowd.go.set()
        await workshop.events.seen("job_completed", count=8)
    assert crowd.most["a"] == 2


async def test_small_tenants_end_beside_a_large_one(workshop: Workshop) -> None:
    crowd = CrowdByKey()
    crowd.go.set()
    workshop.handle("mail", crowd, fair=Fair(by="tenant"))
    await start(workshop, "mail", "large", 300)
    for key in KEYS:
        await start(workshop, "mail", key, 5)
    await workshop.until_idle(slots=4)
    last = max(place for place, (key, _) in enumerate(crowd.order) if key in KEYS)
    assert last < 100


async def test_a_rate_holds_in_any_period(workshop: Workshop) -> None:
    starts = Starts()
    workshop.handle("ask", starts, rates=[Rate(4, "600ms")])
    await start(workshop, "ask", None, 12)
    async with workshop.working(slots=10):
        await workshop.events.seen("job_completed", count=12)
    assert starts.most_within(599) <= 4


@pytest.mark.parametrize("rule", [Rate(4, "600ms"), Rate(4, "600ms", by="tenant")])
async def test_a_worker_that_ends_when_idle_waits_for_a_short_rate(
    workshop: Workshop, rule: Rate
) -> None:
    starts = Starts()
    workshop.handle("ask", starts, rates=[rule])
    await start(workshop, "ask", "a", 10)
    report = await workshop.until_idle(rate_wait_ms=600)
    assert (report.reason, report.counters["processed"]) == ("idle", 10)
    assert starts.most_within(599) <= 4


async def test_it_leaves_what_a_longer_rate_or_a_retry_holds_back(workshop: Workshop) -> None:
    starts = Starts()

    async def fail(job: Job[Any]) -> None:
        raise OSError

    workshop.handle("ask", starts, rates=[Rate(4, "601ms")])
    workshop.handle("again", fail, rates=[Rate(4, "100ms")], retry=Retry(base="5s", cap="5s"))
    await start(workshop, "ask", None, 10)
    await start(workshop, "again", None)
    report = await workshop.until_idle(rate_wait_ms=600)
    assert (report.reason, report.counters["processed"], report.counters["retried"]) == (
        "idle",
        4,
        1,
    )


async def test_jobs_of_a_key_run_in_order_through_retries(workshop: Workshop) -> None:
    runs: defaultdict[str, list[int]] = defaultdict(list)

    async def apply(job: Job[dict[str, Any]]) -> None:
        runs[job.input["tenant"]].append(job.input["n"])
        if job.attempt == 1 and job.input["n"] % 2:
            raise ValueError("not yet")

    workshop.handle(
        "order", apply, ordered=Ordered(by="tenant"), retry=Retry(base="1ms", cap="1ms")
    )
    for number in range(6):
        for key in KEYS:
            fields: dict[str, Any] = {"gate": f"order#{key}", "ordered": True}
            await workshop.start("order", {"tenant": key, "n": number}, **fields)
    async with workshop.working(slots=6), workshop.working(slots=6):
        await workshop.events.seen("job_completed", count=18)
    for key in KEYS:
        assert runs[key] == [0, 1, 1, 2, 3, 3, 4, 5, 5]


@pytest.mark.parametrize(("on_failure", "ran"), [("hold", [0]), ("skip", [0, 1])])
async def test_a_dead_letter_holds_its_line_or_is_skipped(
    workshop: Workshop, on_failure: Any, ran: list[int]
) -> None:
    seen: list[int] = []

    async def apply(job: Job[dict[str, Any]]) -> None:
        seen.append(job.input["n"])
        if job.input["n"] == 0 and len(seen) == 1:
            raise Permanent("broken")

    workshop.handle("order", apply, ordered=Ordered(by="tenant", on_failure=on_failure))
    ids = []
    for number in range(2):
        fields: dict[str, Any] = {"gate": "order#a", "ordered": True}
        ids += await workshop.start("order", {"tenant": "a", "n": number}, **fields)
    await workshop.until_idle()
    assert seen == ran
    await workshop.run(workshop.store.jobs.redrive([ids[0]]))
    await workshop.until_idle()
    assert seen == ([0, 0, 1] if on_failure == "hold" else [0, 1, 0])


async def test_a_busy_key_rests_and_the_others_go_on(workshop: Workshop) -> None:
    seen: Counter[str] = Counter()

    async def ask(job: Job[dict[str, Any]]) -> None:
        seen[job.input["tenant"]] += 1
        if job.input["tenant"] == "a":
            raise Busy("1h", "429", key=True)

    workshop.handle("ask", ask, limits=[Limit(1, by="tenant")])
    await start(workshop, "ask", "a", 3)
    await start(workshop, "ask", "b", 3)
    await workshop.until_idle(slots=1)
    assert seen == {"a": 1, "b": 3}


async def test_jobs_started_without_the_limit_line_up(workshop: Workshop) -> None:
    crowd = CrowdByKey()
    workshop.handle("mail", crowd, limits=[Limit(1, by=lambda input: input["tenant"].upper())])
    for key in KEYS:
        await workshop.start("mail", {"tenant": key}, 3)
    async with workshop.working(slots=10):
        await until(lambda: crowd.now == dict.fromkeys(KEYS, 1))
        crowd.go.set()
        await workshop.events.seen("job_completed", count=9)
    assert crowd.most == dict.fromkeys(KEYS, 1)


async def test_lines_are_emptied_when_the_code_limits_no_more(workshop: Workshop) -> None:
    crowd = CrowdByKey()
    crowd.go.set()
    limited = workshop.handle("mail", crowd, limits=[Limit(1, by="tenant")])
    await start(workshop, "mail", "a", 5)
    del workshop.types["mail"]
    assert limited.flow is not None
    workshop.handle("mail", crowd)
    await workshop.start("mail", {"tenant": "a"}, 2)
    async with workshop.working(slots=10):
        await workshop.events.seen("job_completed", count=7)


async def test_a_limit_raised_at_run_time_holds_at_once(workshop: Workshop) -> None:
    crowd = CrowdByKey()
    workshop.handle("mail", crowd, limits=[Limit(1, by="tenant")])
    await start(workshop, "mail", "a", 9)
    await start(workshop, "mail", "b", 9)
    async with workshop.working(slots=20):
        await until(lambda: crowd.now == {"a": 1, "b": 1})
        await workshop.run(workshop.store.limits.set(every_key("mail"), allowed=2))
        await workshop.run(workshop.store.limits.set("mail#b", allowed=4))
        await until(lambda: crowd.now == {"a": 2, "b": 4})
        crowd.go.set()
        await workshop.events.seen("job_completed", count=18)
    assert crowd.most == {"a": 2, "b": 4}


async def test_a_killed_holder_gives_its_place_back_with_the_reap(workshop: Workshop) -> None:
    crowd = CrowdByKey()
    workshop.handle("mail", crowd, limits=[Limit(1, by="tenant")])
    ids = await start(workshop, "mail", "a", 2)
    first = workshop.begin(slots=1, reaps=False)
    await until(lambda: crowd.now["a"] == 1)
    workshop.ledger.expire()
    report = await workshop.run(reap_leases(workshop.store))
    assert [each.id for each in report.page.reaped] == [ids[0]]
    async with workshop.working(slots=1):
        await workshop.events.seen("job_started", job_id=ids[0], attempt=2)
        crowd.go.set()
        await workshop.events.seen("job_completed", job_id=ids[1])
    await first.stop(times=2)


def version(handler: Any, **options: Unpack[TypeOptions]) -> dict[str, JobType]:
    """The type as one version of the code declares it."""
    return {"mail": job_type_of(handler, "mail", Job, options)}


async def test_versions_with_different_limits_never_run_more_than_the_larger(
    workshop: Workshop,
) -> None:
    crowd = CrowdByKey()
    before = version(crowd, limits=[Limit(1, by="tenant")])
    after = version(crowd, limits=[Limit(3, by="tenant")])
    without = version(crowd)
    workshop.types = before
    await start(workshop, "mail", "a", 20)
    async with workshop.working(types=after, slots=10):
        await until(lambda: crowd.now["a"] == 3)
        async with (
            workshop.working(types=before, slots=10),
            workshop.working(types=without, slots=10, notifier=workshop.notifier) as none,
        ):
            # A version without the limit leaves the line alone while those that have it are there to serve it.
            await workshop.beat(none)
            for _ in range(5):
                # A start has the full key looked at.
                await start(workshop, "mail", "a")
                workshop.notifier.send([Hint("due", "mail")])
                await workshop.beat(none)
            crowd.go.set()
            await workshop.events.seen("job_completed", count=25)
    assert crowd.most["a"] == 3
    # Once they are gone, it empties what is left.
    await start(workshop, "mail", "a", 5)
    async with workshop.working(types=without, slots=10):
        await workshop.events.seen("job_completed", count=30)


async def test_versions_with_different_rates_never_start_more_than_the_larger(
    workshop: Workshop,
) -> None:
    starts = Starts()
    slow = version(starts, rates=[Rate(2, "600ms", by="tenant")])
    fast = version(starts, rates=[Rate(4, "600ms", by="tenant")])
    workshop.types = slow
    await start(workshop, "mail", "a", 16)
    async with workshop.working(types=slow, slots=10), workshop.working(types=fast, slots=10):
        await workshop.events.seen("job_completed", count=16)
    assert starts.most_within(599) <= 4


async def test_limited_and_plain_types_share_the_slots(workshop: Workshop) -> None:
    crowd = CrowdByKey()
    crowd.go.set()
    workshop.handle("mail", crowd, limits=[Limit(2, by="tenant")])
    workshop.handle_quick()
    await start(workshop, "mail", "a", 40)
    await workshop.start("quick", count=200)
    await workshop.until_idle(slots=2)
    events = [each.fields["type"] for each in workshop.events.of("job_completed")]
    assert Counter(events) == {"mail": 40, "quick": 200}
    assert "quick" in events[:60]
