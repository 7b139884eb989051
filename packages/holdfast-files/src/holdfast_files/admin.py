"""Large values for HTTP, pages and the command line: everywhere else they are shown as size and digest."""

from __future__ import annotations

import asyncio
from typing import Literal

import msgspec

from holdfast.admin.access import Caller, NounAdmin
from holdfast.admin.jobs import read_job
from holdfast.core.codec import decode_any
from holdfast.core.ids import parse_id
from holdfast.core.redaction import redact_value
from holdfast.core.sealing import open_input, open_output

Payload = Literal["input", "output"]


class LargeValueAdmin(NounAdmin):
    """Reads inputs and outputs in full, from files or rows."""

    async def get(self, caller: Caller, id: str, payload: Payload, raw: bool = False) -> str:
        """Return the input or the output of a job as JSON text, in clear; its secrets only if `raw` asks for them.

        Raises: JobNotFound, Refused, SealError.
        """
        wanted = str(parse_id(id))
        job = await self._gateway.read(caller, "job.payload", lambda store: read_job(store, wanted))
        sealer = self._gateway.app.registry.sealer

        def read() -> str:
            if payload == "input":
                text = open_input(sealer, job.input, job.id, job.type)
            else:
                text = open_output(sealer, job.output or "null", job.chain_id)
            return text if raw else msgspec.json.encode(redact_value(decode_any(text))).decode()

        # In a thread: the file may be far away.
        return await asyncio.to_thread(read)
