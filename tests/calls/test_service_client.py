"""Service calls against a real server: what is sent, and what every kind of answer becomes."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgspec
import pytest

from holdfast.core.errors import ConfigError
from holdfast.settings import read_settings
from holdfast_calls import ServiceClient, service_client
from holdfast_calls.errors import ServiceCallFailed


class Api:
    """A server that writes down what it is asked and answers as it is told."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.status, self.answer = 200, b'{"done": 3}'
        self.headers: dict[str, str] = {}
        self.may_go_on = threading.Event()
        self.is_slow = False
        self.headers_drip = False
        api = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                headers = {name.lower(): value for name, value in self.headers.items()}
                api.asked.append({"path": self.path, "headers": headers, "body": body})
                if api.headers_drip:
                    self.drip(b"HTTP/1.1 200 OK\r\nx-slow: " + b"x" * 600)
                    return
                self.send_response(api.status)
                for name, value in api.headers.items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(api.answer)))
                self.end_headers()
                if api.is_slow:
                    self.drip(api.answer)
                else:
                    self.wfile.write(api.answer)

            def drip(self, answer: bytes) -> None:
                for each in answer:
                    self.wfile.write(bytes([each]))
                    if api.may_go_on.wait(0.1):
                        return

            def log_message(self, format: str, *args: Any) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/api/"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def close(self) -> None:
        self.may_go_on.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def api() -> Iterator[Api]:
    made = Api()
    yield made
    made.close()


async def test_a_call_carries_token_key_and_body(api: Api) -> None:
    client = ServiceClient(api.url, "s3cret")
    answer = await client.call("/internal/billing", key="billing:2025", body={"tenant": 7})
    assert answer == {"done": 3}
    (asked,) = api.asked
    assert asked["path"] == "/api/internal/billing"
    assert asked["headers"]["x-service-token"] == "s3cret"
    assert asked["headers"]["idempotency-key"] == "billing:2025"
    assert json.loads(asked["body"]) == {"tenant": 7}


def test_an_empty_answer_is_nothing(api: Api) -> None:
    api.status, api.answer = 204, b""
    assert ServiceClient(api.url, "s3cret").call_sync("x", key="k") is None


@pytest.mark.parametrize("status", [302, 401, 404, 500, 503])
async def test_an_answer_that_is_no_success_is_an_error_worth_another_attempt(
    api: Api, status: int
) -> None:
    api.status = status
    with pytest.raises(ServiceCallFailed, match=f"POST x got status {status}") as caught:
        await ServiceClient(api.url, "s3cret").call("x", key="k")
    assert caught.value.retryable
    assert "s3cret" not in caught.value.render()


class Done(msgspec.Struct):
    """What the API answers."""

    done: int


async def test_an_answer_is_of_the_type_that_is_wanted(api: Api) -> None:
    client = ServiceClient(api.url, "s3cret")
    assert await client.call("x", key="k", returns=Done) == Done(3)
    api.answer = b'{"done": "many"}'
    with pytest.raises(ServiceCallFailed, match=r"does not fit: .* Done at \$\.done"):
        await client.call("x", key="k", returns=Done)
    api.answer = b""
    with pytest.raises(ServiceCallFailed, match="does not fit"):
        await client.call("x", key="k", returns=Done)


@pytest.mark.parametrize(
    "answer",
    [b'{"code": "HF088", "title": "Done"}', b'{"detail": {"code": "HF088", "title": "Done"}}'],
)
def test_work_that_was_done_already_is_no_failure(api: Api, answer: bytes) -> None:
    api.status, api.answer = 409, answer
    assert ServiceClient(api.url, "s3cret").call_sync("x", key="k", returns=Done) is None
    api.status = 400
    with pytest.raises(ServiceCallFailed):
        ServiceClient(api.url, "s3cret").call_sync("x", key="k")


def test_another_conflict_is_a_failure(api: Api) -> None:
    api.status, api.answer = 409, b'{"code": "LOCKED", "detail": "the month is closed"}'
    with pytest.raises(ServiceCallFailed) as caught:
        ServiceClient(api.url, "s3cret").call_sync("x", key="k")
    assert caught.value.message == "POST x got status 409: [LOCKED] the month is closed"
    assert (caught.value.status, caught.value.problem_code) == (409, "LOCKED")


@pytest.mark.parametrize(
    ("status", "answer", "said", "help"),
    [
        (
            503,
            b'{"code": "HF085", "detail": "no token", "help": "set WORKER_API_SERVICE_TOKEN"}',
            "[HF085] no token",
            "set WORKER_API_SERVICE_TOKEN",
        ),
        (401, b'{"detail": "Unauthorized"}', "Unauthorized", "the same WORKER_API_SERVICE_TOKEN"),
        (404, b'{"detail": "Not Found"}', "Not Found", "WORKER_API_BASE_URL and the path"),
        (422, b'{"detail": [{"loc": ["body"]}]}', '[{"loc":["body"]}]', "the API's own log"),
        (500, b"Internal\nServer Error", "Internal Server Error", "the API's own log"),
        (502, b"bad " * 5000, "bad bad bad", "the API's own log"),
        (400, b"password=hunter2", "password=", "the API's own log"),
    ],
    ids=[503, 401, 404, 422, 500, 502, 400],
)
def test_a_failure_says_what_the_response_says(
    api: Api, status: int, answer: bytes, said: str, help: str
) -> None:
    api.status, api.answer = status, answer
    with pytest.raises(ServiceCallFailed) as caught:
        ServiceClient(api.url, "s3cret").call_sync("x", key="k")
    assert caught.value.message.startswith(f"POST x got status {status}: {said}")
    assert len(caught.value.message) < 600
    assert help in caught.value.help
    assert caught.value.status == status
    assert "hunter2" not in caught.value.render()


def test_a_redirect_is_not_followed_and_says_where_it_leads(api: Api) -> None:
    api.status, api.headers = 307, {"location": "https://elsewhere.example/x"}
    with pytest.raises(ServiceCallFailed) as caught:
        ServiceClient(api.url, "s3cret").call_sync("x", key="k")
    assert "redirected to https://elsewhere.example/x" in caught.value.message
    assert "WORKER_API_BASE_URL" in caught.value.help
    assert len(api.asked) == 1


def test_a_call_ends_in_time_even_if_the_response_drips(api: Api) -> None:
    api.is_slow, api.answer = True, b'"' + b"x" * 600 + b'"'
    with pytest.raises(ServiceCallFailed, match=r"no response within 0\.3 s"):
        ServiceClient(api.url, "s3cret", timeout_s=0.3).call_sync("x", key="k")


def test_a_call_ends_in_time_even_if_the_headers_drip(api: Api) -> None:
    api.headers_drip = True
    with pytest.raises(ServiceCallFailed, match=r"no response within 0\.3 s"):
        ServiceClient(api.url, "s3cret", timeout_s=0.3).call_sync("x", key="k")


def test_a_response_has_a_largest_size(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_client, "MAX_RESPONSE", 100)
    api.answer = b'"' + b"x" * 200 + b'"'
    with pytest.raises(ServiceCallFailed, match="larger than 100 bytes"):
        ServiceClient(api.url, "s3cret").call_sync("x", key="k")


def test_a_call_needs_a_key_and_a_client_a_timeout(api: Api) -> None:
    with pytest.raises(ServiceCallFailed, match="has no key"):
        ServiceClient(api.url, "s3cret").call_sync("x", key="")
    with pytest.raises(ConfigError, match="timeout above 0"):
        ServiceClient(api.url, "s3cret", timeout_s=0)
    assert api.asked == []


async def test_an_answer_that_is_not_json_is_an_error(api: Api) -> None:
    api.answer = b"<html>"
    with pytest.raises(ServiceCallFailed, match="not JSON"):
        await ServiceClient(api.url, "s3cret").call("x", key="k")


async def test_no_answer_is_an_error() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    with pytest.raises(ServiceCallFailed, match="got no response"):
        await ServiceClient(f"http://127.0.0.1:{port}", "s3cret").call("x", key="k")


@pytest.mark.parametrize("path", ["x\r\nHost: evil", "x y"])
async def test_a_path_that_would_break_the_request_is_refused(api: Api, path: str) -> None:
    with pytest.raises(ServiceCallFailed):
        await ServiceClient(api.url, "s3cret").call(path, key="k")
    assert api.asked == []


def test_without_url_or_token_there_is_no_client() -> None:
    with pytest.raises(ConfigError, match="WORKER_API_BASE_URL"):
        ServiceClient.of(read_settings({}))
    with pytest.raises(ConfigError, match="WORKER_API_SERVICE_TOKEN"):
        ServiceClient.of(read_settings({"WORKER_API_BASE_URL": "http://api"}))
    with pytest.raises(ConfigError, match="not an http"):
        ServiceClient("file:///etc/passwd", "s3cret")


async def test_the_settings_describe_the_client(api: Api) -> None:
    environ = {"WORKER_API_BASE_URL": api.url, "WORKER_API_SERVICE_TOKEN": "a token of the tests"}
    await ServiceClient.of(read_settings(environ)).call("y", key="k")
    assert api.asked[0]["headers"]["x-service-token"] == "a token of the tests"
