"""A server that takes over may lack what was read on the one before, and have other events in its places."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.storage.operation import Op
from holdfast_streams.errors import LineLost
from holdfast_streams.reader_store import LINES, ReadBlock
from tests.streams.deliveries import Process
from tests.streams.scene import Scene

pytestmark = pytest.mark.parametrize("url", ["postgres", "other_postgres"], indirect=True)


async def test_what_was_read_on_another_server_is_read_again_because_a_failover_may_have_lost_it(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Process(scene, "first")
    await first.claim()
    scene.publish(1)
    read = LINES.read

    def read_before_the_failover(*given: Any) -> Op[ReadBlock]:
        block = yield from read(*given)
        return block._replace(server=(block.server or 0) - 1)

    with monkeypatch.context() as patch:
        patch.setattr(LINES, "read", read_before_the_failover)
        with pytest.raises(LineLost):
            await first.deliver()
    assert scene.taken() == []
    await first.deliver()
    assert scene.taken() == [1]
    await first.close()
    await scene.app.aclose()
