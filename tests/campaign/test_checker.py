"""Every law of a campaign finds a history that breaks it, made by hand, and lets the one beside it pass."""

from collections import Counter
from pathlib import Path

import pytest
from msgspec import structs

from holdfast_chaos.checker import (
    ABSENT,
    LAWS,
    CampaignVerdict,
    LeftEffect,
    LeftJob,
    LeftReap,
    LeftRows,
    TakenEvent,
    judge,
    percentile,
)
from holdfast_chaos.journal import (
    EventsAcked,
    EventsUndone,
    FaultRecord,
    HandlerBegan,
    HandlerEnded,
    History,
    Journal,
    PublishedEvent,
    StartsAcked,
    StartsUndone,
    WorkerBegan,
    WriteRefused,
    read_journals,
)

LEASE_S = 2.0


def began(
    at: float, fence: int, job: str = "a", actor: str = "w1", attempt: int = 1
) -> HandlerBegan:
    return HandlerBegan(at, actor, job, "chaos.effect", attempt, fence, int(at * 1e6))


def kill(at: float, actor: str | None = "w1", number: int = 1) -> FaultRecord:
    return FaultRecord(number, "kill", at, at, actor, is_death=True)


def row(
    id: str = "a", state: str | None = "completed", fence: int = 1, index: int = 0, chain: str = "a"
) -> LeftJob:
    return LeftJob(id, chain, index, "chaos.effect", state, fence)


def history(*began: HandlerBegan, faults: tuple[FaultRecord, ...] = (kill(50.0),)) -> History:
    return History(acked=[StartsAcked(1.0, {"a": 1})], began=list(began), faults=list(faults))


def rows(*jobs: LeftJob, effects: tuple[tuple[str, int], ...] = (("a", 1),)) -> LeftRows:
    return LeftRows(list(jobs), [LeftEffect(*each) for each in effects])


def taken_over(*faults: FaultRecord) -> tuple[History, LeftRows]:
    """A job that began at 2 s, was taken back at 6 s, and began on another worker at 9 s."""
    told = history(began(2.0, 1), began(9.0, 2, actor="w2"), faults=faults)
    left = rows(row(fence=2), effects=(("a", 2),))
    left.reaps.append(LeftReap("a", 1, 6_000_000))
    return told, left


def laws(verdict: CampaignVerdict) -> list[str]:
    return [each.law for each in verdict.broken]


def test_a_history_that_keeps_all_laws_is_green() -> None:
    verdict = judge(history(began(2.0, 1)), rows(row()), LEASE_S)
    assert (verdict.verdict, verdict.broken, verdict.reasons) == ("green", [], [])
    assert (verdict.jobs, verdict.faults, verdict.duplicates) == (1, {"kill": 1}, 0)
    assert (verdict.lost, verdict.lost_by_failover, verdict.fencing_violations) == (0, 0, 0)
    assert (verdict.recovery_p50_s, verdict.recovery_p99_s) == (None, None)


def test_an_acknowledged_chain_that_is_gone_is_lost() -> None:
    verdict = judge(history(), rows(effects=()), LEASE_S)
    assert (laws(verdict), verdict.lost, verdict.verdict) == (["acknowledged-ends"], 1, "red")


def test_an_acknowledged_job_that_has_not_ended_is_lost() -> None:
    verdict = judge(history(began(2.0, 1)), rows(row(state=None), effects=()), LEASE_S)
    assert (laws(verdict), verdict.lost) == (["acknowledged-ends"], 1)


def test_a_job_of_a_users_application_that_waits_is_unknown_and_not_lost() -> None:
    given = rows(row(state=None), effects=())
    verdict = judge(history(began(2.0, 1)), given, LEASE_S, is_own=False)
    assert (verdict.verdict, verdict.lost) == ("unknown", 0)
    assert verdict.reasons == ["1 jobs had not ended when the time to drain was over"]


def test_failed_jobs_are_counted_by_type_and_break_no_law() -> None:
    given = rows(row(state="failed"), effects=())
    verdict = judge(history(began(2.0, 1)), given, LEASE_S, is_own=False)
    assert (verdict.verdict, verdict.broken) == ("green", [])
    assert (verdict.failed, verdict.failed_by_handlers) == ({"chaos.effect": 1}, 1)


def test_a_job_that_is_quarantined_has_not_failed_by_its_handler() -> None:
    given = rows(row(state="failed"), row("b", "failed", 7, chain="b"), effects=())
    given.reaps.append(LeftReap("a", 1, 6_000_000))
    verdict = judge(history(began(2.0, 1)), given, LEASE_S, is_own=False)
    assert (verdict.failed, verdict.failed_by_handlers) == ({"chaos.effect": 2}, 0)


OF_EVENTS = ("events-arrive", "events-once", "events-in-order")


def test_laws_that_a_users_application_gives_nothing_for_are_not_judged() -> None:
    verdict = judge(history(began(2.0, 1)), rows(row(), effects=()), LEASE_S, is_own=False)
    assert verdict.not_judged == {
        "one-effect": ABSENT["effects"],
        **dict.fromkeys(OF_EVENTS, ABSENT["events"]),
    }
    assert (verdict.verdict, verdict.lost, verdict.fencing_violations) == ("green", 0, 0)
    assert (verdict.events, verdict.events_lost, verdict.events_lost_by_failover) == (None,) * 3
    assert (verdict.events_twice, verdict.events_out_of_order) == (None, None)
    assert verdict.refused_lines is None


def test_of_a_database_that_stayed_away_only_the_journals_are_judged() -> None:
    verdict = judge(history(began(2.0, 1)), None, LEASE_S, has_events=True)
    assert verdict.verdict == "unknown"
    assert verdict.reasons[0] == "the database stayed away, and only the journals were judged"
    assert set(LAWS) - set(verdict.not_judged) == {"fences-grow", "starts-are-charged"}
    assert (verdict.jobs, verdict.failed, verdict.lost, verdict.events) == (None,) * 4
    assert verdict.fencing_violations is None
    back = history(began(2.0, 2), began(4.0, 1), faults=(kill(3.0),))
    assert laws(judge(back, None, LEASE_S)) == ["fences-grow"]


@pytest.mark.parametrize(("promoted_at", "lost", "apart"), [(5.0, 0, 1), (0.5, 1, 0)])
def test_what_an_asynchronous_primary_lost_is_counted_apart(
    promoted_at: float, lost: int, apart: int
) -> None:
    promotion = FaultRecord(1, "promote", promoted_at, promoted_at, is_outage=True, is_lossy=True)
    verdict = judge(history(faults=(promotion,)), rows(effects=()), LEASE_S)
    assert (verdict.lost, verdict.lost_by_failover) == (lost, apart)


def test_nothing_may_be_lost_with_a_synchronous_primary() -> None:
    promotion = FaultRecord(1, "promote", 5.0, 6.0, is_outage=True)
    verdict = judge(history(faults=(promotion,)), rows(effects=()), LEASE_S)
    assert (verdict.lost, verdict.lost_by_failover) == (1, 0)


def test_a_chain_that_was_rolled_back_and_exists_breaks_a_law() -> None:
    told = history(began(2.0, 1))
    told.undone.append(StartsUndone(1.0, ["b"]))
    given = rows(row(), row("b", chain="b"), effects=(("a", 1), ("b", 1)))
    assert laws(judge(told, given, LEASE_S)) == ["rolled-back-is-gone"]


A1, A2, B1 = (PublishedEvent(*each) for each in (("t1", "a", 1), ("t2", "a", 2), ("t3", "b", 1)))


def publishing(
    *taken: PublishedEvent, faults: tuple[FaultRecord, ...] = (kill(50.0),)
) -> tuple[History, LeftRows]:
    """Two events of a key and one of another, all acknowledged, and what was taken of them."""
    told, left = history(began(2.0, 1), faults=faults), rows(row())
    told.events.append(EventsAcked(2.0, [A1, A2, B1]))
    left.taken += [TakenEvent(each.tag, each.key, each.n) for each in taken]
    left.keys = {"a": 2, "b": 1}
    return told, left


@pytest.mark.parametrize("taken", [(A1, A2, B1), (B1, A1, A2), (A1, B1, A2)])
def test_events_that_are_taken_once_in_the_order_of_their_keys_are_green(
    taken: tuple[PublishedEvent, ...],
) -> None:
    verdict = judge(*publishing(*taken), LEASE_S, has_events=True)
    assert (verdict.verdict, verdict.events, verdict.not_judged) == ("green", 3, {})


@pytest.mark.parametrize(
    ("taken", "law"),
    [
        ((A1, B1), "events-arrive"),
        ((A1, A2, B1, A2), "events-once"),
        ((A2, A1, B1), "events-in-order"),
    ],
)
def test_an_event_that_is_lost_repeated_or_out_of_order_breaks_its_law(
    taken: tuple[PublishedEvent, ...], law: str
) -> None:
    verdict = judge(*publishing(*taken), LEASE_S, has_events=True)
    assert (laws(verdict), verdict.verdict) == ([law], "red")
    counts = (verdict.events_lost, verdict.events_twice, verdict.events_out_of_order)
    assert Counter(counts) == {0: 2, 1: 1}


def test_an_event_that_was_committed_without_an_answer_must_be_taken_too() -> None:
    told, left = publishing(A1, A2, B1)
    left.keys["b"] = 2
    verdict = judge(told, left, LEASE_S, has_events=True)
    assert (laws(verdict), verdict.events_lost) == (["events-arrive"], 1)
    assert verdict.broken[0].named == ["event 2 of b was committed and not taken"]


def test_an_event_that_was_rolled_back_and_taken_breaks_a_law() -> None:
    told, left = publishing(A1, A2, B1)
    told.events_undone.append(EventsUndone(1.0, ["t9"]))
    left.taken.append(TakenEvent("t9", "c", 1))
    assert laws(judge(told, left, LEASE_S, has_events=True)) == ["rolled-back-is-gone"]


@pytest.mark.parametrize(("promoted_at", "lost", "apart"), [(5.0, 0, 1), (0.5, 1, 0)])
def test_events_that_an_asynchronous_primary_lost_are_counted_apart(
    promoted_at: float, lost: int, apart: int
) -> None:
    promotion = FaultRecord(1, "promote", promoted_at, promoted_at, is_outage=True, is_lossy=True)
    told, left = publishing(A1, A2, faults=(promotion,))
    del left.keys["b"]
    verdict = judge(told, left, LEASE_S, has_events=True)
    assert (verdict.events_lost, verdict.events_lost_by_failover) == (lost, apart)


def test_a_campaign_whose_events_were_never_acknowledged_is_unknown() -> None:
    verdict = judge(history(began(2.0, 1)), rows(row()), LEASE_S, has_events=True)
    assert (verdict.verdict, verdict.reasons) == ("unknown", ["no event was acknowledged"])


@pytest.mark.parametrize("fence", [1, 2])
def test_a_fence_that_does_not_grow_breaks_a_law(fence: int) -> None:
    told = history(began(2.0, 2), began(4.0, fence), faults=(kill(3.0),))
    verdict = judge(told, rows(row(fence=2), effects=(("a", 2),)), LEASE_S)
    assert (laws(verdict), verdict.fencing_violations) == (["fences-grow"], 1)


def test_fences_are_compared_in_the_order_of_claims_and_not_of_starts() -> None:
    # The first claimer was paused before it called its handler, and goes on after the second.
    late = HandlerBegan(9.0, "w1", "a", "chaos.effect", 1, 1, 1_000_000)
    told = history(began(4.0, 2, actor="w2"), late, faults=(kill(3.0),))
    assert judge(told, rows(row(fence=2), effects=(("a", 2),)), LEASE_S).broken == []


def test_a_write_that_was_accepted_after_a_newer_claim_breaks_a_law() -> None:
    told = history(began(2.0, 1), began(4.0, 2), faults=(kill(3.0),))
    verdict = judge(told, rows(row(fence=1)), LEASE_S)
    assert (laws(verdict), verdict.fencing_violations) == (["no-stale-write"], 1)


@pytest.mark.parametrize(("crashed_at", "broken"), [(4.5, []), (6.0, ["no-stale-write"])])
def test_a_claim_that_died_with_its_server_was_never_made(
    crashed_at: float, broken: list[str]
) -> None:
    crash = FaultRecord(2, "restart", crashed_at, crashed_at + 1, is_crash=True)
    told = history(began(2.0, 1), began(4.0, 2), faults=(kill(3.0), crash))
    assert laws(judge(told, rows(row(fence=1)), LEASE_S)) == broken


@pytest.mark.parametrize("effects", [(), (("a", 1), ("a", 1)), (("a", 7),)])
def test_a_completed_job_with_other_than_its_own_effect_breaks_a_law(
    effects: tuple[tuple[str, int], ...],
) -> None:
    verdict = judge(history(began(2.0, 1)), rows(row(), effects=effects), LEASE_S)
    assert (laws(verdict), verdict.fencing_violations) == (["one-effect"], 1)


@pytest.mark.parametrize("state", ["failed", "cancelled"])
def test_an_effect_of_a_job_that_was_not_completed_breaks_a_law(state: str) -> None:
    assert laws(judge(history(began(2.0, 1)), rows(row(state=state)), LEASE_S)) == ["one-effect"]


def test_an_effect_without_a_job_breaks_a_law() -> None:
    given = rows(row(), effects=(("a", 1), ("b", 1)))
    assert laws(judge(history(began(2.0, 1)), given, LEASE_S)) == ["one-effect"]


@pytest.mark.parametrize(
    ("fault", "explained"),
    [
        (kill(3.0), 1),
        (kill(3.0, None), 1),
        (kill(3.0, "w2"), 0),
        (kill(11.0), 0),
        (FaultRecord(1, "cut", 0.2, 0.5, "w1"), 1),  # its aftermath is within a lease
        (FaultRecord(1, "cut", -9.0, -8.0, "w1"), 0),
        (FaultRecord(1, "deploy", 3.0, 3.5, "w1", is_charged=False), 0),
    ],
)
def test_a_second_start_is_charged_to_a_fault_of_its_process_in_between(
    fault: FaultRecord, explained: int
) -> None:
    told = history(began(2.0, 1), began(10.0, 2, actor="w2"), faults=(fault,))
    verdict = judge(told, rows(row(fence=2), effects=(("a", 2),)), LEASE_S)
    assert (verdict.duplicates, verdict.duplicates_explained) == (1, explained)
    assert laws(verdict) == ([] if explained else ["starts-are-charged"])
    assert verdict.charged == ({1: 1} if explained else {})


@pytest.mark.parametrize("indices", [(0,), (0, 2), (1, 2)])
def test_a_chain_with_a_gap_or_without_its_end_breaks_a_law(indices: tuple[int, ...]) -> None:
    told = history(began(2.0, 1))
    told.acked[:] = [StartsAcked(1.0, {"a": 2})]
    jobs = [row(f"a{each}", index=each) for each in indices]
    given = rows(*jobs, effects=tuple((each.id, 1) for each in jobs))
    assert laws(judge(told, given, LEASE_S)) == ["whole-chains"]


def test_a_row_that_breaks_a_law_of_verify_breaks_one_here() -> None:
    given = rows(row())
    given.breaches.append("tallies-agree: mail: 3 counted, 2 stored")
    (broken,) = judge(history(began(2.0, 1)), given, LEASE_S).broken
    assert (broken.law, broken.named) == ("rows-keep-their-laws", given.breaches)


def test_a_campaign_without_a_fault_is_unknown() -> None:
    stall = FaultRecord(1, "stall", 3.0, 4.0, is_injected=False)
    verdict = judge(history(began(2.0, 1), faults=(stall,)), rows(row()), LEASE_S)
    assert (verdict.verdict, verdict.faults) == ("unknown", {})
    assert verdict.reasons == ["no fault was injected"]


def test_a_campaign_without_a_job_is_unknown() -> None:
    verdict = judge(History(faults=[kill(3.0)]), LeftRows(), LEASE_S)
    assert (verdict.verdict, verdict.reasons) == ("unknown", ["no start was acknowledged"])


def test_pauses_that_no_zombie_wrote_after_show_nothing() -> None:
    told = history(began(2.0, 1), faults=(FaultRecord(1, "pause", 3.0, 6.0, "w1", is_death=True),))
    assert judge(told, rows(row()), LEASE_S).verdict == "unknown"
    told.refused.append(WriteRefused(6.1, "w1", "a", 1, "reaped"))
    verdict = judge(told, rows(row()), LEASE_S)
    assert (verdict.verdict, verdict.refused_zombie_writes) == ("green", 1)


def test_recovery_is_measured_from_death_without_the_time_of_outages() -> None:
    outages = (
        FaultRecord(2, "restart", 4.0, 5.0, is_outage=True),
        FaultRecord(3, "restart", 4.5, 5.5, is_outage=True),
    )
    verdict = judge(*taken_over(kill(3.0), *outages), LEASE_S)
    assert verdict.recovery_p50_s == verdict.recovery_p99_s == 1.5
    assert verdict.restart_p50_s == verdict.restart_p99_s == 4.5
    assert [(each.fault, each.at) for each in verdict.recoveries] == [(1, 9.0)]


def test_recovery_begins_with_the_first_death_after_the_start() -> None:
    deaths = (kill(1.0, number=1), kill(3.0, number=2), kill(8.0, number=3))
    verdict = judge(*taken_over(*deaths), LEASE_S)
    assert [(each.fault, each.seconds) for each in verdict.recoveries] == [(2, 3.0)]


@pytest.mark.parametrize(("is_lossy", "expected"), [(True, 1.5), (False, 2.5)])
def test_recovery_begins_again_with_a_failover_that_may_have_lost_it(
    is_lossy: bool, expected: float
) -> None:
    promoted = FaultRecord(2, "promote", 4.0, 4.5, is_outage=True, is_lossy=is_lossy)
    verdict = judge(*taken_over(kill(3.0), promoted), LEASE_S)
    assert verdict.recovery_p99_s == expected


def test_a_job_that_its_worker_gave_back_has_not_been_recovered() -> None:
    told, left = taken_over(kill(3.0))
    left.reaps.clear()
    verdict = judge(told, left, LEASE_S)
    assert (verdict.verdict, verdict.recovery_p50_s, verdict.restart_p99_s) == ("green", None, None)


def test_recovery_is_measured_by_a_database_whose_clock_is_wrong() -> None:
    told, left = taken_over(kill(3.0))
    told.began = [structs.replace(each, claimed_at=each.claimed_at - 10**9) for each in told.began]
    left.reaps = [structs.replace(each, at=each.at - 10**9) for each in left.reaps]
    assert judge(told, left, LEASE_S).recovery_p99_s == 3.0


@pytest.mark.parametrize(
    ("cut_off", "expected"),
    [
        pytest.param(["w2", "w1"], 2.0, id="each worker"),
        pytest.param(["w2", "producer"], 3.0, id="one of two workers"),
    ],
)
def test_recovery_is_measured_without_the_time_in_which_each_worker_was_cut_off(
    cut_off: list[str], expected: float
) -> None:
    faults = [
        FaultRecord(number, "mute", 4.0, 5.0, actor, is_cut_off=True)
        for number, actor in enumerate(cut_off, 2)
    ]
    assert judge(*taken_over(kill(3.0), *faults), LEASE_S).recovery_p99_s == expected


def test_a_restart_is_measured_without_the_time_in_which_each_worker_ran_another_such_job() -> None:
    told, left = taken_over(kill(3.0))
    others = [
        began(6.5, 7, "b", "w2", attempt=2),
        began(6.0, 8, "c", "w1", attempt=2),
        began(1.0, 9, "d", "w1"),
    ]
    told.began += others
    told.ended += [HandlerEnded(8.5, "w2", "b", 7), HandlerEnded(8.0, "w1", "c", 8)]
    verdict = judge(told, left, LEASE_S)
    assert (verdict.restart_p99_s, verdict.free_restart_p99_s) == (6.0, 4.5)


def test_a_restart_is_measured_without_the_time_in_which_each_worker_was_started_again() -> None:
    told, left = taken_over(kill(3.0), kill(6.0, "w2", 2), kill(6.5, "w1", 3))
    told.workers += [WorkerBegan(2.0, "w1"), WorkerBegan(7.5, "w2"), WorkerBegan(8.0, "w1")]
    verdict = judge(told, left, LEASE_S)
    assert (verdict.restart_p99_s, verdict.free_restart_p99_s) == (6.0, 4.5)


def test_percentiles_are_values_that_occurred() -> None:
    assert [percentile([3.0, 1.0, 2.0], share) for share in (0.5, 0.99)] == [2.0, 3.0]
    assert percentile([], 0.5) is None


def test_journals_of_several_processes_are_read_as_one_history(tmp_path: Path) -> None:
    first, second = Journal(tmp_path, "w1"), Journal(tmp_path, "w2")
    first.write(began(4.0, 2))
    second.write(began(2.0, 1, actor="w2"))
    second.write(kill(3.0))
    first.close()
    second.close()
    with (tmp_path / "w2.journal").open("ab") as torn:
        torn.write(b'{"line":"ended","at":5.0,')
    told = read_journals(tmp_path)
    assert [each.at for each in told.began] == [2.0, 4.0]
    assert told.faults == [kill(3.0)]
    assert told.ended == []
