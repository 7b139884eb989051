"""Rules of workers: claims, every end of an attempt, writes with old tokens, renewals and the reaper."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from holdfast.commands.attempts import finish_attempts, reap_leases
from holdfast.core.records import (
    Claim,
    ClaimedJob,
    Finish,
    FinishKind,
    LeaseClass,
    NewBlocker,
    NewJob,
    Probe,
)
from holdfast.storage.id_generator import new_id
from tests.model.machine import TYPES, Machine

NIL = "00000000-0000-0000-0000-000000000000"
POISON = 3


class Attempts(Machine):
    """Workers work."""

    @rule(
        limit=st.integers(1, 4),
        types=st.permutations(["a", "b"])
        | st.lists(st.sampled_from(TYPES), min_size=1, unique=True),
        lease_s=st.sampled_from([10, 60]),
        share=st.sampled_from([None, 1, 2]),
        reads=st.sampled_from([None, 1, 2, 3]),
    )
    def claim(
        self, limit: int, types: list[str], lease_s: int, share: int | None, reads: int | None
    ) -> None:
        token = new_id()
        rules = LeaseClass(token, lease_s * 1000, 3, 5_000, 20_000)
        probes = tuple(
            Probe(each, priority, token, limit, 0, NIL, share=share, reads=reads)
            for each in types
            for priority in range(10)
        )
        request = Claim("w", limit, probes, (rules,))
        jobs = self.same(lambda store: store.jobs.claim(request, self.now))
        tokens = dict.fromkeys(types, rules)
        expected = self.model.claim(types, tokens, limit, share, self.now, reads)
        assert [each.id for each in jobs] == expected
        self.held += jobs

    @precondition(lambda self: self.held)
    @rule(
        kind=st.sampled_from(
            ["complete", "continue", "fail", "retry", "snooze", "release", "cancel"]
        ),
        delay_s=st.integers(0, 40),
        data=st.data(),
    )
    def finish(self, kind: FinishKind, delay_s: int, data: st.DataObject) -> None:
        claimed = self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))
        self.stale.append(claimed)
        next_id = new_id()
        edges: list[NewBlocker] = []
        if kind == "continue":
            others = [each for each in self.model.chains if each != claimed.chain_id]
            edges = self.draw_edges(data, next_id, others)
        self._make(_finish_of(claimed, kind, delay_s * 1000, next_id, edges))

    @precondition(lambda self: self.stale)
    @rule(
        kind=st.sampled_from(["complete", "continue", "fail", "retry", "release"]), data=st.data()
    )
    def finish_with_an_old_token(self, kind: FinishKind, data: st.DataObject) -> None:
        claimed = data.draw(st.sampled_from(self.stale))
        self._make(_finish_of(claimed, kind, 0, new_id(), []))

    def _make(self, finish: Finish) -> None:
        reports = self.both(lambda store: finish_attempts(store, [finish], now=self.now))
        accepted = self.model.finish(finish, self.now)
        assert [bool(each.accepted) for each in reports] == [accepted, accepted]

    @rule()
    def reap(self) -> None:
        self.both(lambda store: reap_leases(store, 100, POISON, None, self.now))
        self.model.reap(POISON, self.now)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def renew(self, data: st.DataObject) -> None:
        token = data.draw(st.sampled_from(self.held)).token
        renewed = self.same(lambda store: store.leases.renew([token], self.now))
        assert bool(renewed) == self.model.renew(token, self.now)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def isolate(self, data: st.DataObject) -> None:
        token = data.draw(st.sampled_from(self.held)).token
        assert self.same(lambda store: store.leases.isolate(token)) == self.model.isolate(token)


def _finish_of(
    claimed: ClaimedJob, kind: FinishKind, delay_ms: int, next_id: str, edges: list[NewBlocker]
) -> Finish:
    successor = NewJob(
        id=next_id,
        chain_id=claimed.chain_id,
        chain_index=claimed.chain_index + 1,
        type=claimed.type,
        input="2",
        blockers=len(edges),
        version=3 if delay_ms % 2_000 else None,
    )
    return Finish(
        id=claimed.id,
        token=claimed.token,
        kind=kind,
        worker="w",
        chain_id=claimed.chain_id,
        output="3" if kind in ("complete", "continue") else None,
        error="boom" if kind in ("fail", "retry", "cancel") else None,
        delay_ms=delay_ms,
        next=successor if kind == "continue" else None,
        next_blockers=edges,
    )
