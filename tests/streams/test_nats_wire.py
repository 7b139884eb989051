"""What is used of NATS's client that it does not document: it is there, and nothing else uses such parts."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import nats
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg

import holdfast_streams
from holdfast_streams.nats_wire import FastClient, frame, frame_with_headers, send_frames
from tests.streams.broker_servers import jetstream_server
from tests.support.until import until

PRIVATE = re.compile(r"\b(?:client|_client|message|subscription)\._[a-z]\w*\(")


async def test_messages_in_one_write_arrive_as_those_of_the_client_do() -> None:
    with jetstream_server() as server:
        url = f"nats://127.0.0.1:{server.port}"
        reader, writer = FastClient(), await nats.connect(url)
        await reader.connect(url)
        found: list[tuple[str, bytes, dict[str, str] | None]] = []

        async def take(message: Msg) -> None:
            found.append((message.subject, message.data, message.headers))

        await reader.subscribe("a.>", cb=take)
        await reader.flush()
        headers = {"ce-id": "1", "ce-subject": "zu%20h%C3%A4user", "Empty": ""}
        await writer.publish("a.first", b"0", headers=headers)
        await send_frames(
            writer, [frame_with_headers("a.second", headers, b"\r\n"), frame("a.third", b"")]
        )
        await writer.publish("a.fourth", b"3")
        await until(lambda: len(found) == 4)
        assert found == [
            ("a.first", b"0", headers),
            ("a.second", b"\r\n", headers),
            ("a.third", b"", None),
            ("a.fourth", b"3", None),
        ]
        await reader.close()
        await writer.close()


def test_the_client_still_has_what_is_used_of_it() -> None:
    assert list(inspect.signature(Client._send_command).parameters) == ["self", "cmd", "priority"]
    raw = b"ce-id: 1\r\nce-time:2026\r\nbad name: 2\r\nnone\r\nText: a: b \r\n\r\n"
    assert FastClient._parse_header_lines(raw) == Client._parse_header_lines(raw)


@pytest.mark.parametrize("folder", ["relay", "inbox"])
def test_no_other_module_uses_what_the_client_does_not_promise(folder: str) -> None:
    for each in (Path(holdfast_streams.__file__).parent / folder).glob("*.py"):
        assert not PRIVATE.search(each.read_text()), each
