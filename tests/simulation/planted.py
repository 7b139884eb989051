"""Defects that are planted on purpose: the laws must find each of them, and none is written for one."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager

import msgspec

Plant = Callable[[], AbstractContextManager[None]]


class Defect(msgspec.Struct, frozen=True):
    """A defect, and what plants it for the length of a block."""

    text: str
    planted: Plant


@contextmanager
def _nothing() -> Iterator[None]:
    yield


DEFECTS: Mapping[str, Defect] = {}
