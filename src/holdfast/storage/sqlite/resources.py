"""What one process holds of a database: connections and threads. After a fork the child makes its own."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial

from holdfast.storage.sqlite.connection import Target, named, open_lent, open_reader, open_writer
from holdfast.storage.sqlite.lanes import Lanes
from holdfast.storage.sqlite.pool import Lender, Pool, Sole
from holdfast.storage.sqlite.writer import Writer

_KEPT = 4
_READING_THREADS = 2


class Resources:
    """Connections by role, the writer, and the threads of async callers; everything is opened at first use."""

    def __init__(self, target: Target) -> None:
        self.readers, self.transactions, writing = _lenders(target)
        self._lenders = {self.readers, self.transactions, writing}
        self.writer = Writer(writing)
        self.lanes = Lanes()
        self.reading = ThreadPoolExecutor(_READING_THREADS, thread_name_prefix="holdfast reader")

    def close(self) -> None:
        """End every thread and close every connection that is not lent."""
        self.writer.close()
        self.lanes.close()
        self.reading.shutdown()
        for each in self._lenders:
            each.close()

    def freeze(self) -> bool:
        """Let go of the file until `thaw`; return whether nobody has it open any more."""
        self.writer.freeze()
        let_go = [each.freeze() for each in self._lenders]
        return all(let_go)

    def thaw(self) -> None:
        """Go on."""
        for each in self._lenders:
            each.thaw()
        self.writer.thaw()


def _lenders(target: Target) -> tuple[Lender, Lender, Lender]:
    """Who lends connections to readers, to transactions and to the writer."""
    if target.in_memory:
        target = named(target)
        sole = Sole(partial(open_lent, target), can_reopen=target.is_named_memory)
        return sole, sole, sole
    path = target.path
    readers = Pool(partial(open_reader, target), _KEPT, path)
    transactions = Pool(partial(open_lent, target), _KEPT, path)
    return readers, transactions, Pool(partial(open_writer, target), 1, path)
