"""What a worker says of itself with each heartbeat."""

from __future__ import annotations

import os
import socket

import msgspec

from holdfast.storage.records import WorkerSign
from holdfast.version import VERSION
from holdfast.worker.workplace import Workplace


def sign_of(place: Workplace) -> WorkerSign:
    """Make the sign of a worker that lives."""
    return WorkerSign(
        id=place.id,
        name=place.options.name,
        host=socket.gethostname(),
        pid=os.getpid(),
        version=VERSION,
        slots=place.options.slots,
        types=msgspec.json.encode(sorted(place.types)).decode(),
        counters=counters_of(place),
        last_error=place.telling.last_error,
    )


def counters_of(place: Workplace) -> str:
    """The worker's counters as they are kept with its presence."""
    return msgspec.json.encode(place.counters.as_dict()).decode()
