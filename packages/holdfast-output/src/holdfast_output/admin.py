"""Output for HTTP, pages and the command line: payloads, shown as those of jobs are."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence

from holdfast.admin.access import Caller, NounAdmin, check
from holdfast.core.redaction import redact_value
from holdfast.storage.operation import Op
from holdfast.storage.store import Store
from holdfast_output.output import OutputEnd, OutputItem, OutputReader, Show, reader_of
from holdfast_output.output_store import HeldJob, read_recent, read_said

_ACTION = "output.read"
RECENT_BATCHES = 1_000
RECENT_BYTES = 64 * 1024
"""What a page shows: the end of it."""


class OutputAdmin(NounAdmin):
    """What can be asked about output."""

    async def read(
        self, caller: Caller, chain: str, after: object = 0, raw: bool = False
    ) -> list[OutputItem]:
        """Read what a chain has emitted. Raises: ChainNotFound, OutputPositionInvalid, Refused."""
        reader = OutputReader(self._gateway.app, chain, after, shown_to(caller, raw))
        return await self._gateway.read(caller, _ACTION, reader.read_all)

    def follow(
        self,
        caller: Caller,
        chain: str,
        after: object = 0,
        raw: bool = False,
        within_s: float = 1.0,
    ) -> AsyncGenerator[Sequence[OutputItem] | OutputEnd, None]:
        """Follow what a chain emits. Raises: ChainNotFound, OutputPositionInvalid, Refused."""
        check(caller.principal, _ACTION)
        return reader_of(self._gateway.app).aio.follow_batches(
            chain, after=after, within_s=within_s, show=shown_to(caller, raw)
        )

    async def recent(self, caller: Caller, chain: str, job: str) -> tuple[list[OutputItem], int]:
        """Read the last items of a job's newest epoch, and how many items that has."""
        reader = OutputReader(self._gateway.app, chain, 0, shown_to(caller))
        held = HeldJob(chain, job, "")

        def read(store: Store) -> Op[tuple[list[OutputItem], int]]:
            found = yield from read_recent(held, RECENT_BATCHES, RECENT_BYTES)
            if not found:
                return [], 0
            said = yield from read_said(held, found[0].epoch)
            return reader.take(found[::-1]), sum(each.items for each in said)

        return await self._gateway.read(caller, _ACTION, read)


def shown_to(caller: Caller, raw: bool = False) -> Show:
    """Return what is shown of payloads: redacted, raw, or nothing to those who may not see them. Raises: Refused."""
    if raw:
        check(caller.principal, "job.payload")
        return lambda data: data
    return redact_value if caller.may("job.payload") else lambda _: None
