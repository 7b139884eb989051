"""Worker processes as tests direct them: started, stopped, continued, killed, and listened to."""

import asyncio
import os
import signal
import sys
from typing import Any

import msgspec

from tests.chaos.process import Scene
from tests.support.until import PATIENCE_S


class Actor:
    """One worker process; its lines are the signals that tests wait for."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.told: list[dict[str, Any]] = []

    @classmethod
    async def start(cls, url: str, scene: Scene) -> "Actor":
        """Start a process."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.chaos.process",
            url,
            msgspec.json.encode(scene).decode(),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        return cls(process)

    async def tells(self, name: str, count: int = 1, **fields: Any) -> None:
        """Read on until so many events of a name with these fields were told."""
        async with asyncio.timeout(PATIENCE_S):
            while self._count(name, fields) < count:
                assert await self._read_line(), f"the process ended before it told {name}"

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self._process.send_signal(number)

    async def stand_still(self) -> None:
        """Stop it, and wait until it stands."""
        self.send(signal.SIGSTOP)
        await asyncio.to_thread(os.waitid, os.P_PID, self._process.pid, os.WSTOPPED | os.WNOWAIT)

    async def ended(self) -> int:
        """Read to the end and return the exit code."""
        async with asyncio.timeout(PATIENCE_S):
            while await self._read_line():
                pass
            return await self._process.wait()

    async def kill(self) -> None:
        """Have it gone, whatever state it is in."""
        if self._process.returncode is None:
            self._process.kill()
        await self.ended()

    def _count(self, name: str, fields: dict[str, Any]) -> int:
        return sum(each["name"] == name and fields.items() <= each.items() for each in self.told)

    async def _read_line(self) -> bool:
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        if line:
            self.told.append(msgspec.json.decode(line))
        return bool(line)
