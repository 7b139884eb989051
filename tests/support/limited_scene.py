"""A scene with limited job types: a worker that declares them, and jobs that wait in their queues."""

from typing import Any

from holdfast import Limit, Ordered, Rate
from holdfast.core.codec import TypeCodec
from holdfast.core.declared_limits import encode_declared
from holdfast.core.flow import Flow, flow_of
from holdfast.core.partitions import LimitedClaim, SignalMark, partition_id
from holdfast.core.records import ClaimedJob, LeaseClass, NewJob
from holdfast.storage.id_generator import new_id
from tests.cli.scene import WORKER, Scene


def flow(type: str, **options: Any) -> Flow:
    """Return what a job type declares."""
    found = flow_of(type, TypeCodec(Any, "input"), options)
    assert found is not None
    return found


MAIL = flow(
    "mail.send",
    limits=[Limit(2, by="tenant_id"), Limit(50), Limit(9, name="smtp")],
    rates=[Rate(100, "1m", by="tenant_id")],
)
ORDERS = flow("order.apply", ordered=Ordered(by="order_id"))


ASK = flow("llm.ask", rates=[Rate(60, "1m", name="provider")])


class LimitedScene:
    """What the surfaces of limits find in a database."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.database, self.store = scene.database, scene.store

    def declare(self, *flows: Flow, worker: str = WORKER) -> None:
        """Let a live worker say what its types declare."""
        types = [each.type for each in flows]
        self.scene.worker(*types, id=worker, limits=encode_declared(flows))

    def start(
        self, flow: Flow, key: str, count: int = 1, ago_s: int = 0, cost: int | None = None
    ) -> list[str]:
        """Start jobs of a key, by default now."""
        past = self.database.read(self.store.schema.clock()) - ago_s * 1_000_000
        ids = [new_id() for _ in range(count)]
        place: dict[str, Any] = {
            "gate": partition_id(flow.type, key),
            "ordered": flow.ordered is not None,
            "cost": cost,
        }
        jobs = [NewJob(id, id, flow.type, '{"to":"ana"}', **place) for id in ids]
        for job in jobs:
            self.database.run(self.store.jobs.insert([job], now=past if ago_s else None))
        return ids

    def claim(self, flow: Flow) -> list[ClaimedJob]:
        """Take what the partitions let through."""
        claim = LimitedClaim(
            worker=WORKER,
            type=flow.type,
            limit=100,
            lease=LeaseClass(new_id(), 60_000, 25, 1_000, 5_000),
            per_key=flow.per_key,
            shared=flow.shared,
            ordered=flow.ordered is not None,
            holds=flow.ordered == "hold",
            marks=(SignalMark(5),),
            max_cost=flow.max_cost,
        )
        found: list[ClaimedJob] = []
        for _ in range(10):
            answer = self.database.run(self.store.jobs.claim_limited(claim))
            found += answer.jobs
        return found
