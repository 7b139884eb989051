"""A bucket, on a real server."""

from __future__ import annotations

import socket
import subprocess
import sys
from urllib.parse import parse_qs, urlsplit

import httpx
import obstore
import pytest
from obstore.store import S3Store

from holdfast_files import Files, open_files
from holdfast_files.conformance import KEY, PDF, FilesContract, sha256
from holdfast_files.content import Content
from holdfast_files.errors import (
    AccessDenied,
    BucketNotFound,
    FilesUnreachable,
    ObjectCorrupted,
    ObjectExists,
)
from holdfast_files.files import Files as FilesOf
from holdfast_files.links import LinkSigner
from holdfast_files.s3 import BucketBackend
from tests.files.s3_server import S3Server
from tests.support.until import PATIENCE_S


class TestBucket(FilesContract):
    """The contract, on a bucket."""

    @pytest.fixture
    def files(self, bucket_files: Files) -> Files:
        return bucket_files


def raw(s3: S3Server, prefix: str) -> S3Store:
    """Return a client that knows nothing of Holdfast."""
    options = {name: values[0] for name, values in parse_qs(s3.options).items()}
    return S3Store(
        urlsplit(s3.base).netloc,
        prefix=prefix,
        endpoint=options["endpoint"],
        region=options.get("region", "us-east-1"),
        client_options={"allow_http": True},
    )


def test_content_that_was_damaged_is_found(s3: S3Server) -> None:
    files = open_files(s3.url("damaged"))
    files.put(KEY, PDF)
    obstore.put(raw(s3, "damaged"), KEY, b"damaged", attributes={"sha256": sha256(PDF)})
    with pytest.raises(ObjectCorrupted, match=KEY):
        files.get(KEY)
    with pytest.raises(ObjectCorrupted):
        files.put_once(KEY, PDF)


def test_an_object_of_other_software_is_read_and_compared_without_a_checksum(s3: S3Server) -> None:
    files = open_files(s3.url("foreign"))
    obstore.put(raw(s3, "foreign"), KEY, PDF, attributes={"Content-Type": "text/plain"})
    assert files.get(KEY) == PDF
    assert files.head(KEY).sha256 == ""
    assert files.put_once(KEY, PDF).sha256 == sha256(PDF)
    with pytest.raises(ObjectExists):
        files.put_once(KEY, b"another")


def test_a_missing_bucket_is_named_by_every_operation(s3: S3Server) -> None:
    files = open_files(s3.url("x", bucket="no-such-bucket-here"))
    calls = (
        lambda: files.put(KEY, PDF),
        lambda: files.put(KEY, iter([b"x" * 9_000_000])),
        lambda: files.put_once(KEY, PDF),
        lambda: files.get(KEY),
        lambda: files.exists(KEY),
        lambda: files.open(KEY),
        lambda: files.delete(KEY),
        lambda: list(files.list()),
    )
    for call in calls:
        with pytest.raises(BucketNotFound, match="no-such-bucket-here"):
            call()


def test_a_wrong_secret_is_denied_and_the_right_one_works(
    s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    with s3.signatures_checked() as (access_key, secret_key):
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", access_key)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", secret_key)
        open_files(s3.url("signed")).put(KEY, PDF)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", secret_key[::-1])
        files = open_files(s3.url("signed"))
        for call in (files.get, files.head, files.delete):
            with pytest.raises(AccessDenied) as denied:
                call(KEY)
            assert secret_key[::-1] not in str(denied.value)
        with pytest.raises(AccessDenied):
            files.put(KEY, b"another")
        with pytest.raises(AccessDenied):
            list(files.list())


def test_an_unreachable_server_is_reported_as_such(s3: S3Server) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{taken.getsockname()[1]}"
        files = open_files(f"s3://bucket?endpoint={endpoint}&allow_http=true")
        with pytest.raises(FilesUnreachable) as refused:
            files.get(KEY)
    assert refused.value.retryable
    assert endpoint in str(refused.value)


def test_a_forked_process_is_refused_instead_of_waiting_forever(s3: S3Server) -> None:
    script = (
        "import os, sys; from holdfast_files import open_files\n"
        "files = open_files(sys.argv[1])\n"
        "files.put('a', b'1')\n"
        "if os.fork() == 0:\n"
        "    try: files.get('a')\n"
        "    except Exception as error: print(error, flush=True)\n"
        "    os._exit(0)\n"
        "os.wait()\n"
        "print(files.get('a'))\n"
    )
    command = [sys.executable, "-c", script, s3.url("forked")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE_S)
    child, parent = done.stdout.splitlines()
    assert child.startswith("[HF107] this process was forked")
    assert parent == "b'1'"


def test_a_link_downloads_the_object_under_a_name(s3: S3Server) -> None:
    files = open_files(s3.url("linked"))
    files.put("a b/ä+#?.pdf", PDF)
    answer = httpx.get(files.url("a b/ä+#?.pdf", "1m", filename='Rechnung "42" März.pdf'))
    assert (answer.status_code, answer.content) == (200, PDF)
    assert answer.headers["content-type"] == "application/pdf"
    disposition = answer.headers["content-disposition"]
    assert disposition.startswith('attachment; filename="Rechnung _42_ M_rz.pdf"')
    assert "filename*=UTF-8''Rechnung%20_42_%20M%C3%A4rz.pdf" in disposition


def test_a_link_without_a_name_is_saved_as_the_key_ends(s3: S3Server) -> None:
    files = open_files(s3.url("linked"))
    files.put(KEY, PDF)
    answer = httpx.get(files.url(KEY))
    assert answer.headers["content-disposition"] == 'attachment; filename="0042.pdf"'


def test_a_link_says_what_it_is_valid_for(s3: S3Server) -> None:
    """That servers refuse what is expired or changed is theirs to check; moto does not, Ceph does."""
    then = 1_790_000_000.0
    files = open_files(s3.url("linked"), clock=lambda: then)
    files.put(KEY, PDF)
    query = parse_qs(urlsplit(files.url(KEY, "10m")).query)
    assert query["X-Amz-Expires"] == ["600"]
    assert query["X-Amz-Date"] == ["20260921T141320Z"]
    if not s3.endpoint:
        past = open_files(s3.url("linked"), clock=lambda: 1_700_000_000.0)
        current = open_files(s3.url("linked")).url(KEY, "10m")
        assert httpx.get(current).status_code == 200
        assert httpx.get(past.url(KEY, "10m")).status_code == 403
        assert httpx.get(current.replace("0042.pdf", "0043.pdf")).status_code == 403
        assert httpx.get(current.replace("Expires=600", "Expires=601")).status_code == 403


class Careless(BucketBackend):
    """A store that ignores conditions, with another writer between the steps of put_once."""

    before = after = b""

    def create(self, key: str, content: Content, content_type: str) -> bool:
        if self.before:
            obstore.put(self._store, key, self.before, attributes={"sha256": sha256(self.before)})
        self.write(key, content, content_type)
        if self.after:
            obstore.put(self._store, key, self.after, attributes={"sha256": sha256(self.after)})
        return True


def test_where_conditions_are_ignored_the_writer_that_is_overwritten_learns_of_it(
    s3: S3Server,
) -> None:
    backend = Careless(raw(s3, "careless"), "bucket")
    backend.after = b"the other"
    with pytest.raises(ObjectExists):
        FilesOf(backend, LinkSigner(None, "")).put_once("after", b"ours")


def test_where_conditions_are_ignored_the_last_writer_stays_and_older_records_do_not_fit(
    s3: S3Server,
) -> None:
    backend = Careless(raw(s3, "careless"), "bucket")
    backend.before = b"the other"
    files = FilesOf(backend, LinkSigner(None, ""))
    assert files.put_once("before", b"ours").sha256 == sha256(b"ours")
    with pytest.raises(ObjectCorrupted):
        files.get("before", sha256=sha256(b"the other"))
