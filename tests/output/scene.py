"""An application whose handlers emit what their input says."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from holdfast import Holdfast, Seal
from holdfast.core.events import Event
from holdfast_output import ChainOutput, add_output
from holdfast_testing.kit import Kit
from tests.support.laws import check_rows


class OutputScene:
    """One application on a database. `run` drives what is due, or a worker in a thread does while `working`."""

    def __init__(self, url: str, seal: Seal | None = None, **options: Any) -> None:
        self.url = url
        self.events: list[Event] = []
        self.app = Holdfast(url, seal=seal)
        self.app.observe(self)
        self.output: ChainOutput = add_output(self.app, **options)
        self._kit: Kit | None = None

    @property
    def kit(self) -> Kit:
        """What runs jobs in this thread."""
        if self._kit is None:
            self._kit = Kit(self.app, self.url)
        return self._kit

    def observe(self, event: Event) -> None:
        self.events.append(event)

    def told(self, name: str) -> list[dict[str, Any]]:
        """The fields of the events of a name."""
        return [each.fields for each in self.events if each.name == name]

    def job(self, name: str, **options: Any) -> Callable[..., Any]:
        """Register a handler."""
        return self.app.job(name, **options)

    def start(self, target: Any, input: Any = None, **options: Any) -> Any:
        with self.app.transaction() as tx:
            return self.app.start(tx, target, input, **options)

    def run(self) -> None:
        self.kit.run_until_idle()

    def said(self, chain: Any) -> list[Any]:
        """The data of all items that count."""
        return [each.data for each in self.output.read(chain)]

    def rows(self) -> list[tuple[int, Any]]:
        """Epoch and data of all that is stored, in order, whether it counts or not."""
        from holdfast_output.output_store import read_batches

        chains = [str(each.id) for each in self.app.chains.list().items]
        found = self.app.database.read(read_batches(dict.fromkeys(chains, 0), 10_000))
        return [(each.epoch, each.data) for some in found.values() for each in some]

    @contextmanager
    def working(self) -> Iterator[None]:
        """Have a worker of this process run what is due, in a thread of its own."""
        self.app.database.migrate()
        worker = self.app.make_worker()
        started, loops = threading.Event(), []

        async def work() -> None:
            loops.append(asyncio.get_running_loop())
            started.set()
            await worker.run()

        thread = threading.Thread(target=lambda: asyncio.run(work()))
        thread.start()
        started.wait()
        try:
            yield
        finally:
            loops[0].call_soon_threadsafe(worker.stop)
            thread.join()

    def close(self) -> None:
        if self._kit is not None:
            self._kit.close()
        self.app.close()
        after = Holdfast(self.url)
        check_rows(after.database)
        after.close()
