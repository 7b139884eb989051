"""What a campaign does to processes, lines and servers: one class for each kind, with its beginning and its end."""

from __future__ import annotations

import random
import signal
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, nullcontext
from threading import Lock
from typing import ClassVar, Literal

import msgspec

from holdfast_chaos.actors import SHUTDOWN_LEASES, CampaignActor
from holdfast_chaos.journal import FaultRecord, now
from holdfast_chaos.proxy import FaultyProxy
from holdfast_chaos.target import CampaignTarget, GivenServer, OwnServer, SqliteTarget

Scope = Literal["worker", "producer", "any", "server"]


class PlannedFault(msgspec.Struct, frozen=True):
    """A fault as the seed decides it: when, what, to whom and for how long, the last two as shares of what there is."""

    number: int
    at: float
    kind: str
    pick: float
    share: float


class FaultScene(msgspec.Struct):
    """What faults are made on."""

    target: CampaignTarget
    workers: Sequence[CampaignActor]
    producers: Sequence[CampaignActor]
    lease_s: float
    is_own: bool = True
    """Whether the job types are our own, whose handlers are short."""


class Fault:
    """One fault; `begin` makes it, `end` takes it back, and both return when that is done."""

    kind: ClassVar[str]
    text: ClassVar[str]
    scope: ClassVar[Scope] = "worker"
    leases: ClassVar[tuple[float, float]] = (0.0, 0.0)
    """The shortest and the longest time it lasts, in leases."""

    is_death: ClassVar[bool] = False
    is_cut_off: ClassVar[bool] = False
    is_outage: ClassVar[bool] = False
    is_crash: ClassVar[bool] = False

    def __init__(self, plan: PlannedFault, scene: FaultScene) -> None:
        self.plan = plan
        self.scene = scene
        self.target = scene.target
        candidates = {
            "worker": scene.workers,
            "producer": scene.producers,
            "any": [*scene.workers, *scene.producers],
            "server": (),
        }[self.scope]
        self.victim = candidates[int(plan.pick * len(candidates))] if candidates else None
        self.was_made = True
        self.began_at = 0.0
        self.ended_at = 0.0

    @property
    def lock(self) -> Lock:
        """What keeps two faults from the same victim."""
        return self.target.lock if self.victim is None else self.victim.lock

    @property
    def actor(self) -> CampaignActor:
        """The process that it happens to."""
        assert self.victim is not None
        return self.victim

    @property
    def proxy(self) -> FaultyProxy:
        """The proxy of that process."""
        assert self.actor.proxy is not None
        return self.actor.proxy

    @property
    def seconds(self) -> float:
        """How long it lasts."""
        shortest, longest = self.leases
        return (shortest + (longest - shortest) * self.plan.share) * self.scene.lease_s

    @property
    def is_lossy(self) -> bool:
        """Whether commits may be lost with it."""
        return False

    @property
    def is_charged(self) -> bool:
        """Whether jobs may start again because of it."""
        return True

    def begin(self) -> None:
        """Make it."""
        raise NotImplementedError

    def end(self) -> None:
        """Take it back."""

    def to_record(self) -> FaultRecord:
        """Return what the journal has of it."""
        return FaultRecord(
            number=self.plan.number,
            kind=self.kind,
            began_at=self.began_at,
            ended_at=self.ended_at or now(),
            actor=None if self.victim is None else self.victim.name,
            is_death=self.is_death,
            is_cut_off=self.is_cut_off,
            is_outage=self.is_outage,
            is_crash=self.is_crash,
            is_lossy=self.is_lossy,
            is_charged=self.is_charged,
        )


class KillWorker(Fault):
    """SIGKILL."""

    kind = "kill"
    text = "SIGKILL to a worker, which is started again"
    leases = (0.0, 0.3)
    is_death = True

    def begin(self) -> None:
        """Kill it."""
        self.actor.kill()
        self.ended_at = now()

    def end(self) -> None:
        """Start another one."""
        self.actor.start()


class KillProducer(KillWorker):
    """SIGKILL of a process in the middle of its transactions."""

    kind = "kill_producer"
    text = "SIGKILL to a producer, which is started again"
    scope: ClassVar[Scope] = "producer"
    is_death = False


class PauseWorker(Fault):
    """SIGSTOP until the lease is over, then SIGCONT: the process does not know, and writes."""

    kind = "pause"
    text = "SIGSTOP to a worker until its leases are over, then SIGCONT"
    leases = (1.3, 2.0)
    is_death = True
    is_cut_off = True

    def begin(self) -> None:
        """Stop it; not while it holds a SQLite file's only lock, or nothing else would happen."""
        with self.target.exclusive() if isinstance(self.target, SqliteTarget) else nullcontext():
            self.actor.pause()

    def end(self) -> None:
        """Let it go on."""
        self.actor.send(signal.SIGCONT)


class Deploy(Fault):
    """SIGTERM, as at every deployment: no job starts twice because of it, unless its handler had to be aborted."""

    kind = "deploy"
    text = "SIGTERM to a worker, which ends in order and is started again"

    @property
    def is_charged(self) -> bool:
        """Whether it took so long that the worker may have aborted a handler."""
        # It does so before its time is over, to have some left for giving the job back.
        aborts_after_s = self.scene.lease_s * SHUTDOWN_LEASES / 2
        return not self.scene.is_own or self.ended_at - self.began_at >= aborts_after_s

    def begin(self) -> None:
        """Ask it to end."""
        self.actor.stop()
        self.ended_at = now()

    def end(self) -> None:
        """Start another one."""
        self.actor.start()


class KillBackend(Fault):
    """The server ends a process's sessions, in the middle of their statements."""

    kind = "kill_backend"
    text = "the server ends all sessions of a process (pg_terminate_backend)"
    scope: ClassVar[Scope] = "any"

    def begin(self) -> None:
        """End its sessions; not while the server itself is down."""
        assert isinstance(self.target, GivenServer)
        with self.target.lock:
            self.was_made = self.target.end_sessions(self.proxy.server_ports()) > 0


class CutLine(Fault):
    """A firewall that ends connections and lets none in."""

    kind = "cut"
    text = "a process's connections end, and no new ones are accepted"
    scope: ClassVar[Scope] = "any"
    leases = (0.05, 1.5)
    is_cut_off = True

    def begin(self) -> None:
        """Cut it."""
        self.proxy.cut()

    def end(self) -> None:
        """Accept connections again."""
        self.proxy.pass_all()


class ResetLine(Fault):
    """A router that was switched off and on."""

    kind = "reset"
    text = "a process's connections are reset; new ones are accepted"
    scope: ClassVar[Scope] = "any"

    def begin(self) -> None:
        """Reset them."""
        self.proxy.reset()


class DelayLine(Fault):
    """A slow network."""

    kind = "delay"
    text = "everything a process sends and receives takes longer, up to a quarter of a second"
    scope: ClassVar[Scope] = "any"
    leases = (0.5, 1.5)

    def begin(self) -> None:
        """Slow it down."""
        self.proxy.delay(0.02 + 0.23 * self.plan.pick)

    def end(self) -> None:
        """Be quick again."""
        self.proxy.delay(0)


class SwallowLine(CutLine):
    """A network that lost a route: connections stay open, and nothing comes through."""

    kind = "swallow"
    text = "a process's connections stay open, and nothing passes in either direction"

    def begin(self) -> None:
        """Let nothing through."""
        self.proxy.swallow()


class MuteLine(CutLine):
    """A network that lost one direction: what is asked is done, and nobody hears of it."""

    kind = "mute"
    text = "the server receives everything from a process, and its answers are lost"

    def begin(self) -> None:
        """Let no answer through."""
        self.proxy.mute()


class RestartServer(Fault):
    """A server that crashes and recovers from its log."""

    kind = "restart"
    text = "the server's processes are ended at once (immediate shutdown), and it recovers"
    scope: ClassVar[Scope] = "server"
    is_outage = True
    is_crash = True

    def begin(self) -> None:
        """Crash and start it."""
        assert isinstance(self.target, OwnServer)
        self.target.crash_and_start()
        self.ended_at = now()


class PromoteStandby(Fault):
    """A failover: the primary is gone, and its standby takes over."""

    kind = "promote"
    text = "the primary is lost for good, and its standby is promoted"
    scope: ClassVar[Scope] = "server"
    is_outage = True
    is_crash = True

    @property
    def is_lossy(self) -> bool:
        """Whether the standby may lack what the primary acknowledged."""
        return isinstance(self.target, OwnServer) and self.target.replication == "async"

    def begin(self) -> None:
        """Lose the primary."""
        assert isinstance(self.target, OwnServer)
        self.target.fail_over()
        self.ended_at = now()

    def end(self) -> None:
        """Give the new one a standby."""
        assert isinstance(self.target, OwnServer)
        self.target.attach_standby()


class LockFile(Fault):
    """Another program that has the write lock: a backup, a shell, a long transaction."""

    kind = "write_lock"
    text = "another connection holds the file's write lock"
    scope: ClassVar[Scope] = "server"
    leases = (0.2, 1.5)
    is_outage = True

    def begin(self) -> None:
        """Take the lock."""
        assert isinstance(self.target, SqliteTarget)
        self._held = ExitStack()
        self._held.enter_context(self.target.exclusive())

    def end(self) -> None:
        """Let others write."""
        self._held.close()


class FullDisk(Fault):
    """A disk without room. PostgreSQL ends when its log has none; what was acknowledged is in that log."""

    kind = "full_disk"
    text = "the file system of the database has no room left, then has it again"
    scope: ClassVar[Scope] = "server"
    leases = (0.2, 1.5)
    is_outage = True
    is_crash = True

    def begin(self) -> None:
        """Fill it."""
        assert self.target.disk is not None
        self.target.disk.fill()

    def end(self) -> None:
        """Make room, and start the server if it ended."""
        assert self.target.disk is not None
        self.target.disk.free()
        self.target.recover()
        self.ended_at = now()


_ALL: Sequence[type[Fault]] = (
    KillWorker,
    KillProducer,
    PauseWorker,
    Deploy,
    KillBackend,
    CutLine,
    ResetLine,
    DelayLine,
    SwallowLine,
    MuteLine,
    RestartServer,
    PromoteStandby,
    LockFile,
    FullDisk,
)
KINDS: Mapping[str, type[Fault]] = {each.kind: each for each in _ALL}


def make_plan(
    seed: int, seconds: float, kinds: Sequence[str], interval_s: float
) -> list[PlannedFault]:
    """Return the faults that a seed means: at random times, every kind as often as the others."""
    dice = random.Random(seed)
    plan: list[PlannedFault] = []
    bag: list[str] = []
    at = interval_s * dice.uniform(0.2, 0.8)
    while kinds and at < seconds:
        if not bag:
            bag = dice.sample(sorted(kinds), len(kinds))
        plan.append(PlannedFault(len(plan) + 1, at, bag.pop(), dice.random(), dice.random()))
        at += interval_s * dice.uniform(0.5, 1.5)
    return plan
