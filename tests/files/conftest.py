"""A server for the run, and fresh stores of files for each test."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast_files import Files, open_files
from tests.files.s3_server import S3Server, s3_server

SECRET = "a secret of no use outside of this test"


@pytest.fixture(scope="session")
def running_s3() -> Iterator[S3Server]:
    """The S3-protocol server of this run."""
    with s3_server() as server:
        yield server


@pytest.fixture
def s3(running_s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    """The server, with credentials for it in the environment."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", running_s3.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", running_s3.secret_key)
    return running_s3


@pytest.fixture
def bucket_files(s3: S3Server) -> Files:
    """An empty prefix of the bucket."""
    return open_files(s3.url(uuid.uuid4().hex))


@pytest.fixture
def directory_files(tmp_path: Path) -> Files:
    """An empty directory."""
    return open_files(tmp_path / "files", secret=SECRET)
