"""Rules of starts: one or many, keys with scopes, windows and exclusions, times, blockers with policies."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import rule

from holdfast.commands.start import StartRequest, start_chains
from holdfast.core.records import KeyScope, NewJob, NewKey
from holdfast.storage.id_generator import new_id
from tests.model.machine import Machine, some_ids


class Starting(Machine):
    """Chains begin."""

    @rule(
        type=st.sampled_from(["a", "b"]),
        priority=st.integers(3, 6),
        delay_s=st.sampled_from([None, -5, 0, 30]),
        max_attempts=st.sampled_from([None, 1, 2]),
        keys=st.lists(st.sampled_from([None, "k1", "k2"]), min_size=1, max_size=3),
        scope=st.sampled_from(["open", "any"]),
        window_s=st.sampled_from([None, 40]),
        version=st.sampled_from([None, 2, 3]),
        data=st.data(),
    )
    def start(
        self,
        type: str,
        priority: int,
        delay_s: int | None,
        max_attempts: int | None,
        keys: list[str | None],
        scope: KeyScope,
        window_s: int | None,
        version: int | None,
        data: st.DataObject,
    ) -> None:
        exclude = self.draw_some(data, self.model.chains)
        window = None if window_s is None else window_s * 1000
        starts = []
        for key in keys:
            id = new_id()
            edges = self.draw_edges(data, id, self.model.chains)
            job = NewJob(
                id=id,
                chain_id=id,
                type=type,
                input="1",
                priority=priority,
                at=None if delay_s is None else self.now + delay_s * 1_000_000,
                key=key,
                max_attempts=max_attempts,
                blockers=len(edges),
                version=version,
            )
            new_key = None if key is None else NewKey(type, key, id, scope, window, exclude)
            starts.append((job, new_key, edges))
        requests = [StartRequest(job, key, tuple(edges)) for job, key, edges in starts]
        started = self.same(lambda store: start_chains(store, requests, now=self.now))
        stands = self.model.start(starts, self.now)
        assert [each.id for each in started] == stands
        for answer, (job, _, _) in zip(started, starts, strict=True):
            assert answer.deduplicated == (answer.id != job.id)
            assert answer.state == self.model.tail(answer.id).state

    @rule(
        lines=st.lists(
            st.tuples(st.sampled_from(["a", "b"]), st.integers(3, 4)), min_size=4, max_size=10
        )
    )
    def start_more_than_a_claim_takes(self, lines: list[tuple[str, int]]) -> None:
        ids = some_ids(len(lines))
        jobs = [
            NewJob(id=id, chain_id=id, type=type, input="1", priority=priority)
            for id, (type, priority) in zip(ids, lines, strict=True)
        ]
        requests = [StartRequest(each, None, ()) for each in jobs]
        self.same(lambda store: start_chains(store, requests, now=self.now))
        self.model.start([(each, None, []) for each in jobs], self.now)
