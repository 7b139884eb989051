"""A stream of NATS JetStream as a sink: atomic batches that name the line's last sequence.

A batch is accepted only if the last message under the line's wildcard is the expected one. Without the header that
names the wildcard, or with one that does not cover the batch's subjects, a server accepts anything: that is asserted.
"""

from __future__ import annotations

import asyncio
import base64
import json
import secrets
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import quote

import nats.errors
from nats.aio.client import Client

from holdfast_streams.brokers import JetStream
from holdfast_streams.errors import BrokerAway, EventRefused, SecondWriter, StreamUnfit
from holdfast_streams.nats_wire import frame_with_headers, heed_cancel, send_frames
from holdfast_streams.relay.cloud_events import ID_HEADERS
from holdfast_streams.relay.sink import (
    MAX_MESSAGES,
    LineEnd,
    OutgoingMessage,
    Position,
    Stored,
    read_position,
)

ANSWER_S = 5.0
CONNECT_S = 3.0
REST_S = 0.5
"""How long a failed connection is not tried again, by any line."""

PENDING_BYTES = 64 * 1024 * 1024

BATCH_HEADERS = 400
"""What the headers of a batch take at most."""

NEVER_MORE = 16_384
"""More than the headers of any event have together; what fits with them is not looked at closer."""

NO_MESSAGE, NO_STREAM, NOT_CLUSTERED, TOO_LARGE = 10037, 10059, 10074, 10054
_WRONG_LAST = (10071, 10164)
_NO_LEADER = (10008, 10009)
_FULL = (10023, 10047, 10077)

_POSITION = "Holdfast-Position"


class JetStreamSink:
    """See `sink.Sink`. Subjects are those of a template: up to its line they are the line's alone."""

    def __init__(self, stream: JetStream, subject: str | None = None) -> None:
        self._servers = stream.servers
        self._stream = stream.stream
        self._subject = subject or f"{stream.stream}.{{line}}.{{event}}"
        self._prefix = self._subject.partition("{line}")[0]
        self._client: Client | None = None
        self._opening = asyncio.Lock()
        self._is_fit = False
        self._failed: tuple[float, str] | None = None
        self._max_bytes = 0
        self._subjects: dict[tuple[int, str], str] = {}

    # ---- The connection

    async def open(self, creates: bool) -> None:
        async with self._opening:
            client = self._client
            if client is None or client.is_closed:
                await self._connect()
            elif not client.is_connected:
                raise BrokerAway("the connection to NATS is lost")
            if not self._is_fit:
                await self._check_stream(creates)
                self._is_fit = True

    async def _connect(self) -> None:
        if self._failed is not None and time.monotonic() < self._failed[0]:
            raise BrokerAway(self._failed[1])
        client, heard = Client(), list[Exception]()

        async def on_error(error: Exception) -> None:
            heard.append(error)

        async def on_lost() -> None:
            self._is_fit = False

        try:
            async with asyncio.timeout(CONNECT_S):
                await client.connect(
                    self._servers,
                    name="holdfast relay",
                    max_reconnect_attempts=-1,
                    reconnect_time_wait=0.1,  # type: ignore[arg-type]
                    connect_timeout=1,
                    ping_interval=2,
                    max_outstanding_pings=2,
                    pending_size=PENDING_BYTES,
                    error_cb=on_error,
                    disconnected_cb=on_lost,
                )
        except (TimeoutError, OSError, nats.errors.Error) as error:
            await _close(client)
            cause = heard[-1] if heard else error
            words = f"NATS cannot be reached: {str(cause) or type(cause).__name__}"
            self._failed = time.monotonic() + REST_S, words
            raise BrokerAway(words) from error
        except BaseException:
            await _close(client)
            raise
        self._client, self._failed, self._is_fit = client, None, False

    async def close(self) -> None:
        if self._client is not None:
            await _close(self._client)
            self._client = None

    # ---- The stream

    async def _check_stream(self, creates: bool) -> None:
        info = await self._ask(f"STREAM.INFO.{self._stream}")
        if _code(info) == NO_STREAM:
            if not creates:
                raise StreamUnfit(
                    f"the stream {self._stream} is gone; what the log still has is sent again once it exists",
                    help="have the relay create it: holdfast streams recreate RELAY",
                )
            info = await self._create()
        self._raise(info)
        config = info["config"]
        if not config.get("allow_atomic"):
            raise StreamUnfit(
                f"the stream {self._stream} does not take atomic batches, which need NATS 2.12",
                help="set allow_atomic in its configuration; in nats-py, StreamConfig(…, allow_atomic=True)",
            )
        if config.get("retention", "limits") != "limits":
            raise StreamUnfit(
                f"the stream {self._stream} removes messages that were read, so it cannot say where to go on",
                help="feed a stream whose retention is `limits`; others can source from it",
            )
        sizes = [self._need_client().max_payload, config.get("max_msg_size", -1)]
        self._max_bytes = min(each for each in sizes if each > 0)

    async def _create(self) -> dict[str, Any]:
        """Make the stream: with three replicas in a cluster, else with one."""
        wanted = {
            "name": self._stream,
            "subjects": [f"{self._prefix}>"],
            "storage": "file",
            "retention": "limits",
            "discard": "old",
            "allow_atomic": True,
            "allow_direct": True,
        }
        made = await self._ask(f"STREAM.CREATE.{self._stream}", {**wanted, "num_replicas": 3})
        if _code(made) == NOT_CLUSTERED:
            made = await self._ask(f"STREAM.CREATE.{self._stream}", {**wanted, "num_replicas": 1})
        if "error" in made:
            raise StreamUnfit(
                f"the stream {self._stream} could not be created: {_words(made)}",
                help="create it with a client that may, with the subjects "
                f"{self._prefix}> and allow_atomic: in nats-py, StreamConfig(…, allow_atomic=True)",
            )
        return made

    # ---- Lines

    async def resume(self, line: int) -> LineEnd:
        found = await self._message({"last_by_subj": self._wildcard(line)})
        if found is not None:
            stored, sequence = found
            return LineEnd(stored.position, stored.id, sequence)
        info = await self._ask(f"STREAM.INFO.{self._stream}")
        self._raise(info)
        return LineEnd(oldest=info["state"]["first_seq"])

    async def append(
        self, line: int, expected: LineEnd, batch: Sequence[OutgoingMessage]
    ) -> LineEnd:
        assert 0 < len(batch) <= MAX_MESSAGES
        client, wildcard = self._need_client(), self._wildcard(line)
        subjects = [self.subject_of(line, each) for each in batch]
        covered = wildcard.removesuffix(">")
        # The server takes a batch from anyone if the filter does not cover it.
        assert all(each.startswith(covered) for each in set(subjects))
        first = {
            "Nats-Expected-Stream": self._stream,
            "Nats-Expected-Last-Subject-Sequence": str(expected.sequence),
            "Nats-Expected-Last-Subject-Sequence-Subject": wildcard,
        }
        marks: dict[str, str] = {}
        if len(batch) > 1:
            marks = {"Nats-Batch-Id": secrets.token_hex(12), "Nats-Batch-Sequence": ""}
        frames: list[bytes] = []
        try:
            for number, (message, subject) in enumerate(zip(batch, subjects, strict=True), 1):
                headers = {**message.headers, _POSITION: message.position.on(line), **marks}
                if marks:
                    headers["Nats-Batch-Sequence"] = str(number)
                if number == 1:
                    headers.update(first)
                if number < len(batch):
                    frames.append(frame_with_headers(subject, headers, message.data))
            if marks:
                headers["Nats-Batch-Commit"] = "1"
                await send_frames(client, frames)
            reply = await heed_cancel(
                client.request(subject, message.data, ANSWER_S, headers=headers)
            )
        except nats.errors.MaxPayloadError as error:
            raise EventRefused("a message is larger than the server takes") from error
        except (nats.errors.Error, OSError) as error:
            raise self._away(error) from error
        answer = json.loads(reply.data)
        self._raise(answer)
        end = batch[-1]
        return LineEnd(end.position, end.id, answer["seq"])

    async def read_after(self, line: int, position: Position, limit: int) -> list[Stored]:
        """Positions of a line grow with the stream's sequence, so the first one after another is found by halving."""
        info = await self._ask(f"STREAM.INFO.{self._stream}")
        self._raise(info)
        low, high = info["state"]["first_seq"], info["state"]["last_seq"] + 1
        wildcard = self._wildcard(line)
        while low < high:
            middle = (low + high) // 2
            found = await self._message({"seq": middle, "next_by_subj": wildcard})
            if found is None or found[0].position > position:
                high = middle
            else:
                low = found[1] + 1
        stored: list[Stored] = []
        while len(stored) < limit:
            found = await self._message({"seq": low, "next_by_subj": wildcard})
            if found is None:
                break
            stored.append(found[0])
            low = found[1] + 1
        return stored

    def refusal(self, line: int, message: OutgoingMessage) -> str | None:
        subject = self.subject_of(line, message)
        if ".." in subject or subject.endswith("."):
            return f"{subject} is not a subject of NATS, whose parts cannot be empty"
        if len(message.data) + NEVER_MORE < self._max_bytes:
            return None
        size = len(message.data) + message.header_bytes + BATCH_HEADERS
        if self._max_bytes and size > self._max_bytes:
            return f"the message has {size:,} bytes, and the stream takes {self._max_bytes:,}"
        return None

    def subject_of(self, line: int, message: OutgoingMessage) -> str:
        """Return a message's subject; what a key has that no subject may have is percent-encoded."""
        if "{key}" in self._subject:
            key = quote(message.key or "", safe="").replace(".", "%2E")
            return self._subject.format(line=line, event=message.event, key=key)
        known = self._subjects.get((line, message.event))
        if known is None:
            known = self._subject.format(line=line, event=message.event)
            self._subjects[line, message.event] = known
        return known

    def _wildcard(self, line: int) -> str:
        return f"{self._prefix}{line}.>"

    # ---- Asking

    async def _message(self, which: Mapping[str, Any]) -> tuple[Stored, int] | None:
        """Read a message from the stream's leader, which has all that was acknowledged; followers may lag."""
        answer = await self._ask(f"STREAM.MSG.GET.{self._stream}", which)
        if _code(answer) == NO_MESSAGE:
            return None
        self._raise(answer)
        message = answer["message"]
        headers = _headers(message.get("hdrs", ""))
        try:
            position = read_position(headers[_POSITION])
        except (KeyError, ValueError):
            raise StreamUnfit(
                f"{message['subject']} has a message that no relay wrote, number {message['seq']}",
                help=f"leave subjects below {self._prefix}* to the relay, or feed another stream",
            ) from None
        id = next((headers[name] for name in ID_HEADERS if name in headers), "")
        event = headers.get("ce-type") or headers.get("Holdfast-Event", "")
        return Stored(position, id, event), message["seq"]

    async def _ask(self, what: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        data = json.dumps(body).encode() if body else b""
        try:
            reply = await heed_cancel(
                self._need_client().request(f"$JS.API.{what}", data, timeout=ANSWER_S)
            )
        except nats.errors.NoRespondersError as error:
            self._is_fit = False
            raise BrokerAway(
                "NATS answers without JetStream, or JetStream is not ready",
                help="start its servers with JetStream (-js); the relay goes on by itself",
            ) from error
        except (nats.errors.Error, OSError) as error:
            raise self._away(error) from error
        answer: dict[str, Any] = json.loads(reply.data)
        return answer

    def _need_client(self) -> Client:
        if self._client is None or not self._client.is_connected:
            raise BrokerAway("the connection to NATS is lost")
        return self._client

    def _away(self, error: Exception) -> BrokerAway:
        self._is_fit = False
        if self._client is None or not self._client.is_connected:
            return BrokerAway("the connection to NATS is lost")
        if isinstance(error, nats.errors.NoRespondersError | nats.errors.TimeoutError):
            return BrokerAway(
                f"the stream {self._stream} does not answer; it may have no leader", "no_leader"
            )
        return BrokerAway(f"NATS refuses: {error}")

    def _raise(self, answer: Mapping[str, Any]) -> None:
        """Raise what an answer with an error means."""
        if "error" not in answer:
            return
        code, words = _code(answer), f"JetStream says: {_words(answer)}"
        if code in _WRONG_LAST:
            raise SecondWriter(words)
        if code == TOO_LARGE:
            raise EventRefused(words)
        self._is_fit = False
        if code in _FULL:
            raise BrokerAway(words, "full")
        raise BrokerAway(words, "no_leader" if code in _NO_LEADER else "away")


def _code(answer: Mapping[str, Any]) -> int | None:
    error = answer.get("error")
    return None if error is None else error.get("err_code", error.get("code"))


def _words(answer: Mapping[str, Any]) -> str:
    error = answer["error"]
    return f"{error.get('description', 'an error')} ({_code(answer)})"


def _headers(encoded: str) -> dict[str, str]:
    lines = base64.b64decode(encoded).decode("utf-8", "replace").split("\r\n")[1:]
    return {name: text for name, mark, text in (each.partition(": ") for each in lines) if mark}


async def _close(client: Client) -> None:
    with suppress(nats.errors.Error, OSError, TimeoutError):
        async with asyncio.timeout(2):
            await client.close()
