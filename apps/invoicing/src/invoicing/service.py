"""How cycles have the API do their work: a service call with the key of the slot."""

from __future__ import annotations

from typing import TypeVar

from holdfast import CycleRun
from holdfast_calls import ServiceClient

T = TypeVar("T")

MAX_ITEMS = 200


async def call_api(run: CycleRun, path: str, returns: type[T]) -> T | None:
    """Call the API for a slot; None means that an earlier try of the slot did the work.

    WORKER_API_BASE_URL and WORKER_API_SERVICE_TOKEN say where and with which token.
    """
    return await ServiceClient.of().call(
        path,
        key=run.key,
        returns=returns,
        body={
            "on": run.slot.date(),
            "maxItems": run.max_items or MAX_ITEMS,
            "shard": {"index": run.shard.index, "count": run.shard.count},
        },
    )
