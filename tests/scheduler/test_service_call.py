"""Service calls against a real server: what is sent, and what every kind of answer becomes."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from holdfast.core.errors import ConfigError, ServiceCallFailed
from holdfast.scheduler.service_call import ServiceClient
from holdfast.settings import read_settings


class Api:
    """A server that writes down what it is asked and answers as it is told."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.status, self.answer = 200, b'{"done": 3}'
        api = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                headers = {name.lower(): value for name, value in self.headers.items()}
                api.asked.append({"path": self.path, "headers": headers, "body": body})
                self.send_response(api.status)
                self.send_header("content-length", str(len(api.answer)))
                self.end_headers()
                self.wfile.write(api.answer)

            def log_message(self, format: str, *args: Any) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/api/"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def close(self) -> None:
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
    environ = {"WORKER_API_BASE_URL": api.url, "WORKER_API_SERVICE_TOKEN": "s3cret"}
    await ServiceClient.of(read_settings(environ)).call("y", key="k")
    assert api.asked[0]["headers"]["x-service-token"] == "s3cret"
