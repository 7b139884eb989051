"""What can be started: job types and events as the registry knows them, and their inputs as text."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

import msgspec

from holdfast.client.start_options import check_priority
from holdfast.core.codec import SIZE_LIMIT, TypeCodec
from holdfast.core.errors import InvalidOption
from holdfast.core.flow import Flow
from holdfast.core.job_context import encode_context
from holdfast.core.records import DEFAULT_PRIORITY, JobRecord
from holdfast.core.registry import JobType, Registry, Target, check_name
from holdfast.core.sealing import KeptInput, Sealer, is_sealed, seal_input, seal_output
from holdfast.core.signatures import check_kind
from holdfast.core.upgrades import check_version
from holdfast.extensions import count_costs

_ANYTHING = TypeCodec(Any)


class StartableType(msgspec.Struct, frozen=True):
    """A job type as a start needs it: its name and the codec of its input."""

    name: str
    codec: TypeCodec
    waits_for: tuple[str, ...] | None = None
    flow: Flow | None = None
    version: int | None = None
    sealed: bool = False
    sealer: Sealer | None = None
    expires_ms: int | None = None

    def stored_input(self, id: str, text: str) -> str:
        """Return the input of a job as it is stored. Raises: SealKeyMissing."""
        return seal_input(self.sealer, text, id, self.name) if self.sealed else text

    def with_seal(self, sealed: object) -> StartableType:
        """Return the type as a start asks for it. Raises: InvalidOption."""
        check_kind("sealed", sealed, (bool,))
        if self.sealed and not sealed:
            raise InvalidOption(f"job type {self.name} is sealed", help="omit sealed=")
        return msgspec.structs.replace(self, sealed=bool(sealed))

    def place(self, input: str) -> Place:
        """Return where a job with this input waits. Raises: InputInvalid."""
        if self.flow is None:
            return _ANYWHERE
        return Place(
            self.flow.partition_of(input), self.flow.ordered is not None, self.cost_of(input)
        )

    def cost_of(self, input: str) -> int | None:
        """Return what a job with this input costs, where that counts. Raises: CostInvalid, CostTooLarge."""
        is_counted = self.flow is not None and self.flow.cost is not None
        return count_costs().cost_of(self.flow, input) if is_counted else None

    def check_priority(self, priority: object) -> int:
        """Return the priority of a start. Raises: InvalidOption."""
        checked = check_priority(priority)
        if checked != DEFAULT_PRIORITY and self.flow is not None and self.flow.ordered is not None:
            raise InvalidOption(
                f"job type {self.name} is ordered, so no job is more urgent than the one before it",
                help="omit priority=",
            )
        return checked


class Place(NamedTuple):
    """The fields of a new job that say where it waits. A job is made faster from names than from `**` of a dict."""

    gate: str | None = None
    ordered: bool = False
    cost: int | None = None


_ANYWHERE = Place()


def _startable(type: JobType) -> StartableType:
    return StartableType(
        type.name,
        type.input,
        type.waits_for,
        type.flow,
        type.stored_version,
        type.sealed,
        type.sealer,
        type.expires_ms,
    )


class Targets:
    """Finds job types in the registry and encodes their inputs, within the size limit."""

    def __init__(self, registry: Registry, open_types: bool, payload_limit: int) -> None:
        self._registry = registry
        self._open_types = open_types
        self.limit, self.output_limit = payload_limit, SIZE_LIMIT
        self._entries: dict[str, tuple[JobType, StartableType]] = {}
        self.open_emission: Callable[[Any], Any] | None = None  # set by what keeps what jobs emit
        self.context_names: Collection[str] | None = None  # set by what declares contexts

    def encode_context(self, context: Mapping[str, str] | None) -> str | None:
        """Return the context of a start as it is stored. Raises: ContextInvalid."""
        return None if context is None else encode_context(context, self.context_names)

    def entry(self, target: Target, version: int | None = None) -> StartableType:
        """Return the type to be started; a version is that of an input whose type is not registered here.

        Raises: UnknownJobType, InvalidName, InvalidOption.
        """
        known = self._registry.find(target)
        if known is not None and version is None:
            # Most starts ask for a type that was started before.
            kept = self._entries.get(known.name)
            if kept is not None and kept[0] is known:
                return kept[1]
        if known is None:
            found = self.successor(target)
            if version is None:
                return found
            stored = None if check_version(version) == 1 else version
            return msgspec.structs.replace(found, version=stored)
        if version is not None and version != known.version:
            raise InvalidOption(
                f"{known.name} has version {known.version} here, not {repr(version)[:20]}",
                help="omit version: the registered type sets it",
            )
        if not known.entry:
            raise InvalidOption(
                f"job type {known.name} is declared with entry=False, so no chain begins with it",
                help="start the chain with another type that continues with this one",
            )
        entry = _startable(known)
        self._entries[known.name] = (known, entry)
        return entry

    def successor(self, target: Target) -> StartableType:
        """Return the type a chain continues with, whether or not a chain may begin with it. Raises: see `entry`."""
        if self._open_types and isinstance(target, str) and target not in self._registry:
            return StartableType(check_name(target), _ANYTHING, sealer=self._registry.sealer)
        return _startable(self._registry.get(target))

    def output_of(self, type: str) -> TypeCodec | None:
        """Return the codec of a type's output, None for a type that is not registered here."""
        known = self._registry.find(type)
        return None if known is None else known.output

    def encode(self, entry: StartableType, input: Any) -> str:
        """Return an input as text. Raises: InputInvalid, PayloadTooLarge, PayloadNotEncodable."""
        if type(input) is KeptInput:
            return input.reference
        return entry.codec.encode(input, self.limit)

    def encode_event(self, event: str, input: Any) -> str:
        """Return an event's input as text that fits the input type of every handler known here.

        Raises: InvalidName, InputInvalid, PayloadTooLarge, PayloadNotEncodable.
        """
        declared = self._registry.find(check_name(event))
        known = [declared] if declared is not None else []
        codecs = [each.input for each in (*known, *self._registry.of_event(event))]
        texts = [each.encode(input, self.limit) for each in codecs or [_ANYTHING]]
        return texts[0]

    def is_logged(self, event: str) -> bool:
        """Whether a reader of the log that is declared here reads an event."""
        return any(fnmatchcase(event, each) for each in self._registry.log_patterns)

    def event(self, event: str) -> StartableType:
        """Return how an event of this name is written: its version, and whether it is sealed."""
        known = self._registry.find(event) or next(iter(self._registry.of_event(event)), None)
        if known is None:
            return StartableType(event, _ANYTHING)
        return msgspec.structs.replace(_startable(known), name=event)

    def stored_output(self, job: JobRecord, text: str) -> str:
        """Return an output as it is stored when it completes a job from outside. Raises: SealKeyMissing."""
        known, sealer = self._registry.find(job.type), self._registry.sealer
        if not (known is not None and known.sealed) and not is_sealed(job.input):
            return text
        return seal_output(sealer, text, job.chain_id, job.type)


def open_targets(types: Iterable[JobType]) -> Targets:
    """Return targets that know these types and accept any other name, for use without an application."""
    registry = Registry()
    for each in types:
        registry.add(each)
    return Targets(registry, open_types=True, payload_limit=SIZE_LIMIT)
