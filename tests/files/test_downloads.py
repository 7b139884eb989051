"""Signed links to a local directory, served to a real HTTP client."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx
import pytest
import uvicorn
from fastapi import FastAPI

from holdfast.core.errors import ConfigError
from holdfast_files import Files, open_files
from holdfast_files.conformance import PDF
from holdfast_files.errors import LinkInvalid, SigningSecretMissing
from tests.files.conftest import SECRET
from tests.support.serving import authorities
from tests.support.until import PATIENCE_S

KEY = "rechnungen/März 2026/ä+#?.pdf"
NOW = 1_790_000_000.0


def get(url: str, **options: Any) -> httpx.Response:
    """Ask for a file."""
    return httpx.get(url, verify=authorities(), **options)


class Site:
    """An application that serves files, and the time it lives in."""

    def __init__(self, root: Path) -> None:
        self.now = NOW
        self.root = root
        self.base = ""
        self.files = open_files(root)

    def open(self, secret: str | None = SECRET) -> Files:
        return open_files(
            self.root, secret=secret, base_url=f"{self.base}/files", clock=lambda: self.now
        )


@contextmanager
def served(app: FastAPI, listening: socket.socket) -> Iterator[None]:
    """Serve an application until the test ends."""
    ready = threading.Event()

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            ready.set()

    server = Server(uvicorn.Config(app, log_level="critical", timeout_graceful_shutdown=1))
    thread = threading.Thread(target=lambda: server.run(sockets=[listening]), daemon=True)
    thread.start()
    try:
        assert ready.wait(PATIENCE_S), "the server did not start"
        yield
    finally:
        server.should_exit = True
        thread.join(30)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """The application with the downloads at /files, and at /closed those of files without a secret."""
    site = Site(tmp_path / "files")
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        site.base = f"http://127.0.0.1:{listening.getsockname()[1]}"
        site.files = site.open()
        app = FastAPI()
        app.mount("/files", site.files.downloads())
        app.mount("/closed", site.open(secret=None).downloads())
        with served(app, listening):
            yield site


def test_a_link_downloads_the_object_under_a_name(site: Site) -> None:
    site.files.put(KEY, PDF)
    answer = get(site.files.url(KEY, "10m", filename="Rechnung März.pdf"))
    assert (answer.status_code, answer.content) == (200, PDF)
    headers = answer.headers
    assert headers["content-type"] == "application/pdf"
    assert headers["content-length"] == str(len(PDF))
    assert headers["content-disposition"].endswith("filename*=UTF-8''Rechnung%20M%C3%A4rz.pdf")
    assert headers["x-content-type-options"] == "nosniff"


async def test_a_query_that_is_no_text_is_a_wrong_link(tmp_path: Path) -> None:
    """h11 refuses such bytes itself; other servers pass them on."""
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        raise AssertionError("a download has no body to receive")

    scope = {"type": "http", "method": "GET", "path": "/a", "query_string": b"expires=\xff"}
    downloads = open_files(tmp_path, secret=SECRET).downloads()
    await downloads(scope | {"headers": []}, receive, send)
    assert sent[0]["status"] == 403


@pytest.mark.parametrize(
    ("wanted", "part"),
    [
        ("bytes=0-3", PDF[:4]),
        ("bytes=5-", PDF[5:]),
        ("bytes=-4", PDF[-4:]),
        ("bytes=2-999999", PDF[2:]),
    ],
)
def test_a_range_of_bytes_is_served_alone(site: Site, wanted: str, part: bytes) -> None:
    site.files.put(KEY, PDF)
    answer = get(site.files.url(KEY), headers={"Range": wanted})
    assert (answer.status_code, answer.content) == (206, part)
    first = PDF.index(part) if wanted != "bytes=-4" else len(PDF) - 4
    shown = f"bytes {first}-{first + len(part) - 1}/{len(PDF)}"
    assert answer.headers["content-range"] == shown
    assert answer.headers["content-length"] == str(len(part))


@pytest.mark.parametrize("wanted", ["bytes=999999-", "bytes=5-2", "bytes=-0"])
def test_a_range_that_is_not_there_is_refused_with_the_size(site: Site, wanted: str) -> None:
    site.files.put(KEY, PDF)
    answer = get(site.files.url(KEY), headers={"Range": wanted})
    assert (answer.status_code, answer.content) == (416, b"")
    assert answer.headers["content-range"] == f"bytes */{len(PDF)}"


@pytest.mark.parametrize("wanted", ["bytes=0-1,3-4", "lines=1-2", "bytes=-", "bytes=a-b"])
def test_other_ranges_are_answered_with_the_whole(site: Site, wanted: str) -> None:
    site.files.put(KEY, PDF)
    answer = get(site.files.url(KEY), headers={"Range": wanted})
    assert (answer.status_code, answer.content) == (200, PDF)


def test_a_download_resumes_only_if_the_object_is_the_same(site: Site) -> None:
    site.files.put(KEY, PDF)
    link = site.files.url(KEY)
    etag = httpx.head(link).headers["etag"]
    resumed = get(link, headers={"Range": "bytes=4-", "If-Range": etag})
    assert (resumed.status_code, resumed.content) == (206, PDF[4:])
    site.files.put(KEY, b"other")
    again = get(link, headers={"Range": "bytes=4-", "If-Range": etag})
    assert (again.status_code, again.content) == (200, b"other")


def test_a_link_without_a_name_is_saved_as_the_key_ends(site: Site) -> None:
    site.files.put("a/b.txt", PDF)
    answer = get(site.files.url("a/b.txt"))
    assert answer.headers["content-disposition"] == 'attachment; filename="b.txt"'


def test_a_large_object_is_streamed(site: Site) -> None:
    content = b"0123456789" * 500_000
    site.files.put("large.bin", content)
    assert get(site.files.url("large.bin")).content == content


def test_head_answers_without_the_content(site: Site) -> None:
    site.files.put(KEY, PDF)
    answer = httpx.head(site.files.url(KEY))
    assert (answer.status_code, answer.content) == (200, b"")
    assert answer.headers["content-length"] == str(len(PDF))


def test_a_link_expires(site: Site) -> None:
    site.files.put(KEY, PDF)
    link = site.files.url(KEY, "10m")
    site.now = NOW + 599
    assert get(link).status_code == 200
    site.now = NOW + 600
    answer = get(link)
    assert (answer.status_code, answer.text) == (403, "the link has expired\n")


@pytest.mark.parametrize(
    ("part", "other"),
    [
        ("a.pdf?", "b.pdf?"),
        ("a.pdf?", "x/../b.pdf?"),
        ("a.pdf?", "%2e%2e/files/b.pdf?"),
        ("expires=1", "expires=2"),
        ("expires=", "expires=x"),
        ("filename=a", "filename=b"),
        ("signature=", "signature=x"),
        ("signature=", "other="),
        ("signature=", "signature=%C3%A4"),
    ],
)
def test_a_changed_link_is_refused(site: Site, part: str, other: str) -> None:
    site.files.put("a.pdf", PDF)
    site.files.put("b.pdf", PDF)
    link = site.files.url("a.pdf")
    assert part in link
    answer = get(link.replace(part, other, 1))
    assert (answer.status_code, answer.text) == (403, "the link's signature is wrong\n")


def test_a_link_of_another_secret_is_refused(site: Site) -> None:
    site.files.put(KEY, PDF)
    link = site.open(secret="another secret that is long enough").url(KEY)
    assert get(link).status_code == 403


def test_without_a_secret_no_link_is_made_and_none_is_accepted(site: Site) -> None:
    site.files.put(KEY, PDF)
    for secret in (None, ""):
        with pytest.raises(SigningSecretMissing, match="secret="):
            site.open(secret=secret).url(KEY)
    link = site.files.url(KEY)
    assert get(link.replace("/files/", "/closed/")).status_code == 403
    assert get(f"{site.base}/closed/a.pdf").status_code == 403


def test_a_short_secret_is_refused_without_being_shown(site: Site) -> None:
    with pytest.raises(ConfigError, match="fewer than 32") as refused:
        site.open(secret="hunter2")
    assert "hunter2" not in str(refused.value)


def test_a_link_to_what_was_deleted_is_not_found(site: Site) -> None:
    site.files.put(KEY, PDF)
    link = site.files.url(KEY)
    site.files.delete(KEY)
    assert get(link).status_code == 404


def test_only_downloads_are_served(site: Site) -> None:
    site.files.put(KEY, PDF)
    for method in ("POST", "PUT", "DELETE"):
        assert httpx.request(method, site.files.url(KEY)).status_code == 405
    assert site.files.exists(KEY)


def test_damaged_content_breaks_off(site: Site) -> None:
    site.files.put("large.bin", b"x" * 5_000_000)
    with (site.root / "large.bin").open("r+b") as file:
        file.write(b"y")
    with pytest.raises(httpx.RemoteProtocolError):
        get(site.files.url("large.bin"))


def test_other_frameworks_check_a_link_by_its_query(site: Site) -> None:
    link = urlsplit(site.files.url("a.pdf", filename="b.pdf"))
    query = dict(parse_qsl(link.query))
    assert site.files.check_link("a.pdf", query) == "b.pdf"
    with pytest.raises(LinkInvalid):
        site.files.check_link("b.pdf", query)
    with pytest.raises(LinkInvalid):
        site.files.check_link("a.pdf", {})
