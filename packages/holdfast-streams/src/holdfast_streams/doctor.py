"""Checks of streams: readers that no process runs, lines that wait, relays, partitions, inboxes, parked events."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.core.duration import format_span, pluralize
from holdfast.scheduler.doctor import Finding, ok, problem, warning
from holdfast.storage.operation import Op
from holdfast.storage.store import Store
from holdfast_streams.commands import StreamFacts, stream_facts
from holdfast_streams.inbox.inbox_store import INBOXES, InboxRecord
from holdfast_streams.reader_store import READERS, LogPart

LONG_MS = 30_000
"""A line that waits this long for a transaction, or a reader that is behind so far, needs a look."""

LATE_US = 7 * 86_400_000_000
"""A part of the log that is written to for a week was not followed by the next."""


def check_streams(store: Store) -> Op[list[Finding]]:
    """Check readers and log; where nothing reads the log there is nothing to say."""
    facts = yield from stream_facts()
    if not facts:
        return []
    parked = _check_parked(
        "stream_parked",
        "event",
        [(each.reader.name, each.parked_count) for each in facts],
        "these events are not in what the consumers wrote, nor in the streams of relays",
        "streams",
    )
    found = [_check_readers(facts), _check_waits(facts), parked]
    if any(each.reader.kind == "relay" for each in facts):
        found.append(_check_relays(facts))
    if store.dialect == "postgresql":
        found.append(_check_parts(facts, (yield from READERS.parts())))
    return found


def check_inboxes(store: Store) -> Op[list[Finding]]:
    """Check inboxes; where there is none there is nothing to say."""
    found = yield from INBOXES.all()
    if not found:
        return []
    parked = _check_parked(
        "inbox_parked",
        "message",
        [(each.name, each.parked) for each in found],
        "what these messages ask for was not done",
        "inbox",
    )
    return [_check_brokers(found), parked]


CHECKS = (check_streams, check_inboxes)


def _check_readers(facts: Sequence[StreamFacts]) -> Finding:
    idle = [each for each in facts if each.state in ("paused", "idle") and each.lag]
    measured = f"{pluralize(len(facts), 'reader')}, {sum(each.lag for each in facts)} places behind"
    if idle:
        names = ", ".join(f"{each.reader.name} ({each.state})" for each in idle)
        return warning(
            "stream_readers",
            f"{measured}; not read by any process: {names}",
            "what they have not read stays in the log, which grows",
            "start a worker of the application that declares them, `holdfast streams resume` them, or"
            " `holdfast streams remove` those that are gone for good",
        )
    return ok("stream_readers", measured)


def _check_waits(facts: Sequence[StreamFacts]) -> Finding:
    waits = {each.line: each for fact in facts for each in fact.waits}
    long = [each for each in waits.values() if (each.open_ms or 0) >= LONG_MS]
    if long:
        return warning(
            "stream_waits",
            "; ".join(str(each) for each in long),
            "events of these lines that were committed later are held back to keep the order",
            "end the transaction, or find out why it stays open",
        )
    return ok("stream_waits", f"{pluralize(len(waits), 'line')} waiting for open transactions")


def _check_parked(
    check: str, noun: str, parked: Sequence[tuple[str, int]], harm: str, command: str
) -> Finding:
    """Check what was parked, by name and number."""
    some = [(name, count) for name, count in parked if count]
    if some:
        return problem(
            check,
            f"parked {noun}s: {', '.join(f'{name} {count}' for name, count in some)}",
            harm,
            f"see the errors with `holdfast {command} parked {some[0][0]}`; then retry or skip them",
        )
    return ok(check, f"no parked {noun}s")


def _check_relays(facts: Sequence[StreamFacts]) -> Finding:
    relays = [each for each in facts if each.reader.kind == "relay"]
    blocked = [(each, block) for each in relays for block in each.blocks]
    if blocked:
        is_ahead = any(block.state == "ahead" for _, block in blocked)
        return (problem if is_ahead else warning)(
            "stream_relays",
            "; ".join(f"{each.reader.name}: {block}" for each, block in blocked),
            "events of these lines stay in the log, in order, until they can be sent",
            "see that the broker runs and takes messages; a relay whose stream is ahead of this database needs"
            " `holdfast streams rebase`",
        )
    return ok("stream_relays", f"{pluralize(len(relays), 'relay')}, none waits for its broker")


def _check_parts(facts: Sequence[StreamFacts], parts: Sequence[LogPart]) -> Finding:
    now = facts[0].now
    kept = [each for each in parts if each.ends_at is not None and not each.is_passed]
    measured = f"{pluralize(len(parts), 'partition')}, {len(kept)} with events that are not read"
    if parts and now - parts[-1].begins_at > LATE_US:
        return warning(
            "stream_partitions",
            f"{measured}; the newest is {format_span(now - parts[-1].begins_at)} old",
            "old events are deleted one by one, which costs more than dropping a partition",
            "let a worker with consumers connect as the owner of the schema, so that it can make partitions",
        )
    return ok("stream_partitions", measured)


def _check_brokers(inboxes: Sequence[InboxRecord]) -> Finding:
    away = [each for each in inboxes if each.state == "away"]
    if away:
        return problem(
            "inbox_brokers",
            "; ".join(f"{each.name} cannot read {each.source}: {each.error}" for each in away),
            "messages wait at the broker; nothing is lost as long as it keeps them",
            "check that the broker is running, and its address in the inbox",
        )
    idle = [each.name for each in inboxes if each.state == "idle"]
    if idle:
        return warning(
            "inbox_brokers",
            f"not read by any process: {', '.join(idle)}",
            "messages wait at the broker, and are lost when it drops them",
            "start a worker of the application that declares them, or `holdfast inbox remove` those that are gone",
        )
    return ok("inbox_brokers", f"{pluralize(len(inboxes), 'source')}, all read or open")
