"""What operators do with what was parked, for readers of the log and for inboxes alike."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

from holdfast.admin.access import Caller, NounAdmin
from holdfast.admin.serializers import plain, redact_text
from holdfast.commands.change import Change
from holdfast.core.errors import InvalidId
from holdfast.core.ids import parse_id
from holdfast.storage.operation import Op


class ParkedAdmin(NounAdmin):
    """Lists, retries and skips what was parked under a name. Every method raises what `find_op` does for another."""

    noun: ClassVar[str]
    command: ClassVar[str]
    """The group of commands that lists what was parked."""

    @abstractmethod
    def find_op(self, name: str) -> Op[Any]:
        """Read what has the name. Raises: ReaderNotFound or InboxNotFound."""

    @abstractmethod
    def parked_op(self, name: str, state: Any, limit: int) -> Op[list[Any]]:
        """Read what was parked."""

    @abstractmethod
    def retry_op(self, name: str, ids: Sequence[str] | None) -> Op[Change[list[str]]]:
        """Have all or some taken again."""

    @abstractmethod
    def skip_op(self, name: str, ids: Sequence[str] | None) -> Op[Change[list[str]]]:
        """Give all or some up."""

    async def find(self, caller: Caller, name: str) -> Any:
        """Read what has the name."""
        return await self._gateway.read(caller, f"{self.noun}.list", lambda _: self.find_op(name))

    async def list_parked(
        self, caller: Caller, name: str, state: Any = None, limit: int = 50
    ) -> list[Any]:
        """Read what was parked, in one state or in all."""
        await self.find(caller, name)
        return await self._gateway.read(
            caller, f"{self.noun}.list", lambda _: self.parked_op(name, state, limit)
        )

    async def retry(self, caller: Caller, name: str, ids: Sequence[str] = ()) -> list[str]:
        """Have it taken again, all or some. Raises: InvalidId."""
        wanted = self._parse(name, ids)
        return await self._gateway.run(
            caller, f"{self.noun}.retry", lambda _: self.retry_op(name, wanted)
        )

    async def skip(self, caller: Caller, name: str, ids: Sequence[str] = ()) -> list[str]:
        """Give up what failed, all or some. Raises: InvalidId."""
        wanted = self._parse(name, ids)
        return await self._gateway.run(
            caller, f"{self.noun}.skip", lambda _: self.skip_op(name, wanted)
        )

    def _parse(self, name: str, ids: Sequence[str]) -> list[str] | None:
        try:
            return [str(parse_id(each)) for each in ids] or None
        except InvalidId as error:
            fix = f"copy the whole id from `holdfast {self.command} parked {name}`"
            raise InvalidId(error.message, help=fix) from None

    @staticmethod
    def parked_json(parked: Any) -> dict[str, Any]:
        """Return what was parked for programs, without its data."""
        return {**plain(parked), "error": redact_text(parked.error)}
