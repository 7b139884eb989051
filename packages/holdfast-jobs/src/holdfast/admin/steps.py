"""Durable functions for HTTP, pages and the command line: their steps, and the signals they wait for."""

from __future__ import annotations

import builtins
from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from typing import Any, Unpack

import msgspec

from holdfast.admin.access import Caller, NounAdmin
from holdfast.admin.serializers import plain, redact_text, rfc3339, shown_payload
from holdfast.client.enqueue import SignalOptions
from holdfast.commands.signals import make_signal, send_signal
from holdfast.core.codec import decode_any
from holdfast.core.records import BlockerRecord
from holdfast.core.redaction import redact_value
from holdfast.core.sealing import Sealer, open_output
from holdfast.core.steps import UNUSED, StepRecord, failed_call, is_retry, retried_step
from holdfast.storage.operation import Op
from holdfast.storage.store import Store

SHOWN_STEPS = 200
"""With a job in full, this many of its last records are shown."""


class Signals(msgspec.Struct, frozen=True):
    """The newest signals, and what functions wait for, the oldest jobs first."""

    items: builtins.list[dict[str, Any]]
    waits: builtins.list[dict[str, Any]]


class SignalAdmin(NounAdmin):
    """What can be asked about signals, and sending one."""

    async def list(self, caller: Caller, limit: int) -> Signals:
        """Read signals and waits; data only for those who may see payloads."""
        withheld = not caller.may("job.payload")

        def op(store: Store) -> Op[Signals]:
            signals, waits = [], []
            for each in (yield from store.signals.list(limit)):
                data = None if withheld else redact_value(decode_any(each.data))
                signals.append(_record_json(each) | {"data": data, "data_withheld": withheld})
            for wait in (yield from store.signals.waits(limit)):
                waits.append(_record_json(wait) | {"since": rfc3339(wait.since)})
            return Signals(signals, waits)

        return await self._gateway.read(caller, "signal.list", op)

    async def send(
        self,
        caller: Caller,
        name: str,
        key: str | None = None,
        data: Any = None,
        **options: Unpack[SignalOptions],
    ) -> dict[str, Any]:
        """Send a signal; `sent` is false if its id was used before. Raises: InvalidName, InvalidOption."""
        signal = make_signal(name, key, data, **options)
        sent = await self._gateway.run(
            caller, "signal.send", lambda store: send_signal(store, signal)
        )
        return {"id": signal.id if sent else None, "name": name, "key": signal.key, "sent": sent}


def _record_json(record: Any) -> dict[str, Any]:
    return plain(record) | {"until": rfc3339(record.until)}


def shown_steps(
    records: Sequence[StepRecord],
    calls: Sequence[BlockerRecord],
    chain_id: str,
    sealer: Sealer | None,
    raw: bool = False,
    withheld: bool = False,
) -> list[dict[str, Any]]:
    """Return records as every surface shows them; the sleeps before a step's next tries belong to the step."""
    retries: dict[str, list[StepRecord]] = defaultdict(list)
    for each in filter(is_retry, records):
        retries[str(retried_step(each))].append(each)
    ended = {str(each.id) for each in records}
    unused = {
        name for each in records if each.id == UNUSED for name in decode_any(each.output or "[]")
    }
    open_own = partial(open_output, sealer, chain_id=chain_id)
    rows = []
    for each in records:
        step = str(retried_step(each))
        is_later_told = is_retry(each) and (step in ended or each is not retries[step][-1])
        if is_later_told or each.id == UNUSED:
            continue
        called = [call.chain_id for call in calls if call.step == each.position]
        # While chains run, their ids are in the place of what comes of them.
        text = None if each.kind == "run" and each.state == "open" else each.output
        value, is_shut = shown_payload(text, raw, open_own)
        rows.append(
            {
                "step": step,
                "kind": "step" if is_retry(each) else each.kind,
                "state": each.state,
                "tries": len(retries[step]) + (not is_retry(each)),
                "started_at": rfc3339(each.started_at),
                "finished_at": rfc3339(each.finished_at),
                "until": rfc3339(each.until),
                "took_ms": _took_ms(each),
                "output": None if withheld else value,
                "sealed": is_shut,
                "error": redact_text(_error_of(each)),
                "signal": each.signal,
                "signal_key": each.signal_key,
                "chains": called,
                "undo": each.undo,
                "unused": step in unused,
            }
        )
    return rows


def _took_ms(step: StepRecord) -> int | None:
    if step.started_at is None or step.finished_at is None:
        return None
    return max(0, step.finished_at - step.started_at) // 1000


def _error_of(step: StepRecord) -> str | None:
    if step.kind != "run" or step.error is None:
        return step.error
    chain_id, state, error = failed_call(step.error)
    return f"chain {chain_id} {state}{f': {error}' if error else ''}"
