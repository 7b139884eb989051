"""Checks of inboxes: brokers that are away or that nobody reads, and parked messages."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.core.duration import pluralize
from holdfast.scheduler.doctor import Finding, ok, problem, warning
from holdfast.storage.operation import Op
from holdfast.storage.store import Store
from holdfast_streams.inbox.inbox_store import INBOXES, InboxRecord


def check_inboxes(store: Store) -> Op[list[Finding]]:
    """Check inboxes; where there is none there is nothing to say."""
    found = yield from INBOXES.all()
    return [_check_brokers(found), _check_parked(found)] if found else []


CHECKS = (check_inboxes,)


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


def _check_parked(inboxes: Sequence[InboxRecord]) -> Finding:
    parked = [each for each in inboxes if each.parked]
    if parked:
        listed = ", ".join(f"{each.name} {each.parked}" for each in parked)
        return problem(
            "inbox_parked",
            f"parked messages: {listed}",
            "what these messages ask for was not done",
            f"see the errors with `holdfast inbox parked {parked[0].name}`; then retry or skip them",
        )
    return ok("inbox_parked", "no parked messages")
