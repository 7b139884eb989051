"""Chains for HTTP, pages and the command line: lists, the tree of a chain, start, wait, cancel, delete."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import msgspec

from holdfast.admin.access import Caller, NounAdmin, audit_entries, check
from holdfast.admin.jobs import Expected, checked_ids, read_job
from holdfast.admin.serializers import (
    chain_version,
    payloads_of,
    require,
    shown_blocker,
    without_payloads,
)
from holdfast.client.pagination import read_page
from holdfast.client.start_options import StartOptions
from holdfast.client.views import Chain, Page
from holdfast.commands.blockers import no_such_chain
from holdfast.commands.chains import cancel_chain, delete_chains
from holdfast.commands.change import Change, Effect, count_answer
from holdfast.commands.debounce import with_last_input
from holdfast.commands.rerun import copy_records, find_step
from holdfast.core.codec import decode_any
from holdfast.core.duration import Duration
from holdfast.core.errors import InputUnreadable
from holdfast.core.ids import parse_id
from holdfast.core.job_context import decode_context
from holdfast.core.lifecycle import TERMINAL
from holdfast.core.records import ChainRecord, JobRecord, State
from holdfast.core.registry import JobType
from holdfast.core.sealing import KeptInput, is_large, is_sealed, open_input
from holdfast.core.steps import StepRecord
from holdfast.storage.operation import Op, run_async
from holdfast.storage.store import Store

MAX_CHAINS = 200
"""A larger tree is cut here and marked."""

MAX_JOBS = 500
"""Of a longer chain only the last jobs are read."""

TREE_DEPTH = 8


def read_tree(store: Store, chain_id: str, depth: int) -> Op[dict[str, Any]]:
    """Read a chain with its last jobs and, down to a depth, the chains they wait for. Raises: ChainNotFound."""
    tree = yield from _read(store, chain_id, depth, {chain_id})
    if tree is None:
        raise (yield from no_such_chain(store, chain_id))
    return tree


def _read(store: Store, chain_id: str, depth: int, seen: set[str]) -> Op[dict[str, Any] | None]:
    chains = yield from store.chains.get([chain_id])
    if not chains:
        return None
    records = yield from store.chains.jobs(chain_id, MAX_JOBS)
    edges = yield from store.blockers.of_jobs([each.id for each in records])
    jobs = {each.id: {**without_payloads(each), "waits_for": []} for each in records}
    for edge in edges:
        below: dict[str, Any] | None = None
        if depth > 0 and edge.chain_id not in seen and len(seen) < MAX_CHAINS:
            seen.add(edge.chain_id)
            below = yield from _read(store, edge.chain_id, depth - 1, seen)
        waits_for: list[Any] = jobs[edge.job_id]["waits_for"]
        waits_for.append({**shown_blocker(edge), "chain": below})
    earlier = records[0].chain_index if records else 0
    return {**without_payloads(chains[0]), "earlier_jobs": earlier, "jobs": list(jobs.values())}


class ChainDetail(msgspec.Struct, frozen=True):
    """A chain in full: its jobs, and below each the chains it waits for."""

    chain: dict[str, Any]
    tree: dict[str, Any]
    waiting: list[dict[str, Any]]
    version: str


class Template(msgspec.Struct, frozen=True):
    """What a job was started with, for another like it: its input or a reference to it, its options but the key."""

    id: str
    type: str
    input: Any
    options: StartOptions
    version: int | None = None

    def options_of(self, type: str) -> StartOptions:
        """Return the options for a start of a type; the input's version is only that of the job's own."""
        if self.version is None or type != self.type:
            return self.options
        return {**self.options, "version": self.version}


class ChainAdmin(NounAdmin):
    """What can be asked about chains and done to them."""

    async def page(
        self, caller: Caller, filter: str, limit: int, after: str | None
    ) -> Page[dict[str, Any]]:
        """Read a page of chains, newest first. Raises: FilterError, InvalidCursor, InvalidOption."""
        return await self._gateway.read(
            caller,
            "chain.list",
            lambda store: read_page(
                "chains", filter, limit, after, store.chains.walk, without_payloads
            ),
        )

    async def get(self, caller: Caller, id: str) -> ChainDetail:
        """Read a chain with its tree and those who wait for it. Raises: ChainNotFound."""
        wanted = str(parse_id(id))
        withheld, sealer = not caller.may("job.payload"), self._gateway.app.registry.sealer

        def op(store: Store) -> Op[ChainDetail]:
            record = yield from _one(store, wanted)
            tree = yield from read_tree(store, wanted, TREE_DEPTH)
            edges = yield from store.blockers.waiting(wanted, 100)
            return ChainDetail(
                chain={
                    **without_payloads(record),
                    **payloads_of(record, sealer, withheld=withheld),
                },
                tree=tree,
                waiting=[{"job_id": each.job_id, "open": each.open} for each in edges],
                version=chain_version(record),
            )

        return await self._gateway.read(caller, "chain.get", op)

    async def wait(self, caller: Caller, id: str, timeout: Duration) -> Chain:
        """Wait until a chain has completed. Raises: WaitTimeout, ChainFailed, ChainCancelled, ChainDeleted."""
        check(caller.principal, "chain.wait")
        if caller.principal.only:
            await self.state(caller, id)
        return await self._gateway.app.aio.chains.wait(parse_id(id), timeout)

    async def state(self, caller: Caller, id: str) -> State:
        """Read the state of an awaited chain. Raises: ChainNotFound."""
        wanted = str(parse_id(id))
        record = await self._gateway.read(caller, "chain.wait", lambda store: _one(store, wanted))
        return record.state

    async def template(
        self, caller: Caller, id: str, type: str | None = None, kept_over: int | None = None
    ) -> Template:
        """Read what a job was started with, secrets included, to start one like it, of another type if one is given.

        An input that is kept elsewhere and has more than `kept_over` bytes is referred to, if nothing has to be known
        of it. Raises: JobNotFound, Refused, SealError.
        """
        check(caller.principal, "chain.start")
        wanted = str(parse_id(id))

        def op(store: Store) -> Op[Template]:
            job = yield from with_last_input(store, (yield from read_job(store, wanted)))
            options: StartOptions = {"priority": job.priority, "max_attempts": job.max_attempts}
            if job.context is not None:
                options["context"] = decode_context(job.context)
            registry = self._gateway.app.registry
            known = registry.find(job.type)
            version = job.version if known is None and job.version > 1 else None
            is_same = kept_over is not None and (type or job.type) == job.type
            if is_same and is_large(job.input) and _can_be_kept(job, known):
                kept = KeptInput(job.input)
                if kept.large["size"] > (kept_over or 0):
                    return Template(job.id, job.type, kept, options, version)
            text = open_input(registry.sealer, job.input, job.id, job.type)
            if is_sealed(job.input):
                options["sealed"] = True
            if known is not None:
                # What this code cannot read is shown as it is; the start says what is wrong with it.
                with suppress(InputUnreadable):
                    text = known.current_input(text, job.version)
            return Template(job.id, job.type, decode_any(text), options, version)

        return await self._gateway.read(caller, "job.payload", op)

    async def rerun(self, caller: Caller, id: str, step: str) -> Chain:
        """Start a chain like the one of a durable function, with what was recorded before a step.

        Raises: ChainNotFound, InvalidOption for a step that it does not have, SealError, UnknownJobType.
        """
        check(caller.principal, "chain.rerun")
        app, store, wanted = self._gateway.app, self._gateway.store, str(parse_id(id))

        def find(store: Store) -> Op[tuple[JobRecord, list[StepRecord]]]:
            yield from _one(store, wanted)
            return (yield from find_step(store, wanted, step))

        job, records = await self._gateway.read(caller, "chain.rerun", find)
        like = await self.template(caller, job.id, kept_over=0)
        async with app.transaction() as tx:
            chain: Chain = await app.start(tx, like.type, like.input, **like.options_of(like.type))
            new = str(chain.id)
            await run_async(copy_records(store, app.registry.sealer, job, records, new), tx)
            made = {"type": like.type, "like": job.id, "from": step, "copied": len(records)}
            effect = Effect(f"chain {new}", None, made)
            entries = audit_entries(caller, "chain.rerun", [effect])
            await run_async(store.audit.append(entries), tx)
        return chain

    async def start(
        self,
        caller: Caller,
        type: str,
        input: Any = None,
        options: StartOptions | None = None,
        like: str | None = None,
    ) -> Chain:
        """Start a chain; `like` names the job it was made from. Raises: UnknownJobType, PayloadError, InvalidOption."""
        check(caller.principal, "chain.start")
        app, confinement = self._gateway.app, caller.principal.confinement
        given = options or {}
        if confinement is not None:
            given = confinement.cut_start(app, given)
        async with app.transaction() as tx:
            chain: Chain = await app.start(tx, type, input, **given)
            if not chain.deduplicated or given.get("debounce") is not None:
                made = {"type": type, "state": chain.state} | ({"like": like} if like else {})
                effect = Effect(f"chain {chain.id}", None, made)
                entries = audit_entries(caller, "chain.start", [effect])
                await run_async(self._gateway.store.audit.append(entries), tx)
        return chain

    async def cancel(self, caller: Caller, id: str, expected: Expected = None) -> str:
        """Cancel a chain's live job. Raises: ChainNotFound, WrongState, Changed."""
        wanted = str(parse_id(id))

        def op(store: Store) -> Op[Change[str]]:
            yield from _check_versions(store, [wanted], expected)
            yield from _one(store, wanted)
            return (yield from cancel_chain(store, wanted, caller.reason or ""))

        return await self._gateway.run(caller, "chain.cancel", op)

    async def delete(
        self, caller: Caller, ids: Sequence[str], cascade: bool = False, expected: Expected = None
    ) -> int:
        """Delete chains with all their jobs; return how many jobs. Raises: ChainNotFound, StillReferenced, Changed."""
        wanted = checked_ids(ids)

        def op(store: Store) -> Op[Change[int]]:
            yield from _check_versions(store, wanted, expected)
            return (yield from count_answer(delete_chains(store, wanted, cascade)))

        return await self._gateway.run(caller, "chain.delete", op)


def _can_be_kept(job: JobRecord, known: JobType | None) -> bool:
    """Whether another job may refer to the input: a seal is one job's; keys, costs and upgrades need the content."""
    if is_sealed(job.input) or known is None:
        return not is_sealed(job.input)
    needs_content = known.flow is not None and bool(known.flow.by or known.flow.cost)
    return not known.sealed and known.version == job.version and not needs_content


def _check_versions(store: Store, ids: Sequence[str], expected: Expected) -> Op[None]:
    if expected is None:
        return
    # Live jobs are held until the change, so that the version cannot pass in between.
    tails = yield from store.chains.tails(ids)
    yield from store.jobs.lock([each.job_id for each in tails if each.state not in TERMINAL])
    for each in (yield from store.chains.get(ids)):
        require(expected, chain_version(each))


def _one(store: Store, id: str) -> Op[ChainRecord]:
    found = yield from store.chains.get([id])
    if not found:
        raise (yield from no_such_chain(store, id))
    return found[0]
