"""A push service for this machine that speaks Expo's protocol: it reaches no device and logs what it accepted.

It can be made to fail in the ways of the real one: see `Fault` and the attributes of `PushServer`.
"""

from __future__ import annotations

import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

import msgspec

from tenders.expo import is_push_token

HOST = "127.0.0.1"
MAX_MESSAGES = 100
MAX_TICKETS = 1_000
MAX_BYTES = 4_096
MAX_BODY_BYTES = 8 << 20


class AcceptedPush(msgspec.Struct, frozen=True):
    """A line of the log: one message that the service took."""

    at: float
    ticket: str
    token: str
    title: str
    body: str
    data: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Fault:
    """How one call goes wrong.

    `status` answers with it and does nothing; `slow` works after `seconds`; `lost` works and closes the connection
    without an answer; `garbage` works and answers with something that is not JSON; `short` works and leaves out the
    last ticket.
    """

    kind: Literal["status", "slow", "lost", "garbage", "short"]
    status: int = 503
    seconds: float = 0.0
    headers: dict[str, str] = field(default_factory=dict)


OUTAGE = Fault("status", 503)
LOST = Fault("lost")
GARBAGE = Fault("garbage")
SHORT = Fault("short")


def throttled(retry_after: str) -> Fault:
    """Return a 429 with a Retry-After."""
    return Fault("status", 429, headers={"Retry-After": retry_after})


def slow(seconds: float) -> Fault:
    """Return an answer that takes its time."""
    return Fault("slow", seconds=seconds)


class PushServer:
    """Serves from threads. Attributes may be changed while it serves, from any thread.

    `fault` is how every call fails; `faults` are taken first, one for each call. A token that is `refused` spoils its
    whole request; `ticket_errors` and `receipt_errors` are Expo's codes by token.
    """

    def __init__(self, log: Path, access_token: str = "", receipt_delay_s: float = 0.0) -> None:
        """Take the file of the log; `start` listens."""
        self.fault: Fault | None = None
        self.faults: deque[Fault] = deque()
        self.refused: set[str] = set()
        self.ticket_errors: dict[str, str] = {}
        self.receipt_errors: dict[str, str] = {}
        self.receipt_delay_s = receipt_delay_s
        self.access_token = access_token
        self.calls: list[tuple[str, int]] = []
        self.on_arrival: Callable[[], object] | None = None
        self._log = log
        self._tickets: dict[str, tuple[float, str]] = {}
        self._lock = threading.Lock()
        self._closing = threading.Event()

    def start(self, port: int = 0) -> str:
        """Listen and return the address of the API, for EXPO_URL."""
        self._log.parent.mkdir(parents=True, exist_ok=True)
        self._log.touch()
        self._server = _Listener((HOST, port), self)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.05,), name="push", daemon=True
        )
        self._thread.start()
        return f"http://{HOST}:{self._server.server_address[1]}/--/api/v2"

    def close(self) -> None:
        """Stop, also in the middle of slow answers; the log stays."""
        self._closing.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def accepted(self) -> list[AcceptedPush]:
        """Everything in the log, in the order of arrival."""
        return read_log(self._log)

    def next_fault(self) -> Fault | None:
        """Take the fault of this call."""
        with self._lock:
            return self.faults.popleft() if self.faults else self.fault

    def wait(self, seconds: float) -> None:
        """Pass the time of a slow answer."""
        self._closing.wait(seconds)

    def count(self, path: str, items: int) -> None:
        """Note a call and how many items it had."""
        with self._lock:
            self.calls.append((path, items))

    def take(self, messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Accept messages into the log; return their tickets."""
        with self._lock, self._log.open("ab") as log:
            return [self._ticket(each, log) for each in messages]

    def receipts(self, tickets: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Return the receipts that are ready."""
        now = time.monotonic()
        with self._lock:
            known = {each: self._tickets[each] for each in tickets if each in self._tickets}
        return {
            ticket: self._receipt(token)
            for ticket, (taken, token) in known.items()
            if now - taken >= self.receipt_delay_s
        }

    def _ticket(self, message: dict[str, Any], log: Any) -> dict[str, Any]:
        token = message["to"]
        code = self.ticket_errors.get(token)
        if len(msgspec.json.encode(message)) > MAX_BYTES:
            code = "MessageTooBig"
        if code is not None:
            return _error(code, token)
        ticket = str(uuid4())
        push = AcceptedPush(
            time.time(),
            ticket,
            token,
            message.get("title", ""),
            message.get("body", ""),
            message.get("data") or {},
        )
        log.write(msgspec.json.encode(push) + b"\n")
        self._tickets[ticket] = (time.monotonic(), token)
        return {"status": "ok", "id": ticket}

    def _receipt(self, token: str) -> dict[str, Any]:
        code = self.receipt_errors.get(token)
        return {"status": "ok"} if code is None else _error(code, token)


def read_log(log: Path) -> list[AcceptedPush]:
    """Read every accepted message, in the order of arrival."""
    return [msgspec.json.decode(line, type=AcceptedPush) for line in log.read_bytes().splitlines()]


def _error(code: str, token: str) -> dict[str, Any]:
    message = f'"{token}" is not a registered push notification recipient'
    if code != "DeviceNotRegistered":
        message = f'the message to "{token}" was not delivered: {code}'
    return {"status": "error", "message": message, "details": {"error": code}}


class _Listener(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], push: PushServer) -> None:
        super().__init__(address, _Handler)
        self.push = push

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Keep quiet: clients of these tests go away in the middle of answers."""


class _Refused(Exception):
    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(code)
        self.status = status
        self.content = {"errors": [{"code": code, "message": message}]}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Listener

    def do_POST(self) -> None:
        """Answer one call, or fail as planned."""
        push = self.server.push
        body = self.rfile.read(min(int(self.headers.get("Content-Length", 0)), MAX_BODY_BYTES))
        path = self.path.removeprefix("/--/api/v2/push/")
        fault = push.next_fault()
        if push.on_arrival is not None:
            push.on_arrival()
        if fault is not None and fault.kind == "slow":
            push.wait(fault.seconds)
        if fault is not None and fault.kind == "status":
            push.count(path, 0)
            error = _Refused(fault.status, _CODES.get(fault.status, "INTERNAL_SERVER_ERROR"), "no")
            self._answer(fault.status, error.content, fault.headers)
            return
        try:
            content = self._work(path, body)
        except _Refused as refused:
            self._answer(refused.status, refused.content)
            return
        self._finish(content, fault)

    def _work(self, path: str, body: bytes) -> Any:
        push = self.server.push
        given = self.headers.get("Authorization", "")
        if push.access_token and given != f"Bearer {push.access_token}":
            raise _Refused(401, "UNAUTHORIZED", "the access token is not valid")
        try:
            asked = msgspec.json.decode(body)
        except msgspec.DecodeError as error:
            raise _Refused(400, "VALIDATION_ERROR", str(error)) from None
        if path == "send":
            return push.take(self._messages(asked))
        if path == "getReceipts":
            return push.receipts(self._tickets(asked))
        raise _Refused(404, "NOT_FOUND", "there is no such call")

    def _messages(self, asked: Any) -> list[dict[str, Any]]:
        push = self.server.push
        messages: list[dict[str, Any]] = asked if isinstance(asked, list) else [asked]
        push.count("send", len(messages))
        if len(messages) > MAX_MESSAGES:
            raise _Refused(400, "PUSH_TOO_MANY_NOTIFICATIONS", "at most 100 messages a call")
        for each in messages:
            token = each.get("to", "")
            if not is_push_token(token) or token in push.refused:
                raise _Refused(400, "VALIDATION_ERROR", f"the message to {token} is not valid")
        return messages

    def _tickets(self, asked: Any) -> list[str]:
        tickets: list[str] = asked.get("ids", [])
        self.server.push.count("getReceipts", len(tickets))
        if len(tickets) > MAX_TICKETS:
            raise _Refused(400, "PUSH_TOO_MANY_RECEIPTS", "at most 1000 receipts a call")
        return tickets

    def _finish(self, data: Any, fault: Fault | None) -> None:
        kind = None if fault is None else fault.kind
        if kind == "lost":
            # A reset, so that the client cannot mistake it for a clean end.
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
        elif kind == "garbage":
            self._send(200, b"<html>502 Bad Gateway</html>", {})
        else:
            self._answer(200, {"data": data[:-1] if kind == "short" else data})

    def _answer(self, status: int, content: Any, headers: dict[str, str] | None = None) -> None:
        self._send(status, msgspec.json.encode(content), headers or {})

    def _send(self, status: int, content: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Keep quiet."""


_CODES = {429: "TOO_MANY_REQUESTS", 400: "VALIDATION_ERROR", 401: "UNAUTHORIZED"}
