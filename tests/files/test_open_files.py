"""What a URL opens, and what is refused before anything is stored."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from holdfast.core.errors import ConfigError, MissingExtra
from holdfast_files import open_files
from holdfast_files.errors import CredentialsMissing, InvalidObjectKey

AWS = (
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_S3",
    "AWS_ALLOW_HTTP",
)


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Credentials, and nothing else."""
    for name in AWS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2")


def test_a_directory_is_opened_by_path_or_url(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    relative = open_files("my files")
    monkeypatch.chdir("/")
    relative.put("a", b"1")
    for url in (tmp_path / "my files", f"{tmp_path}/my files", f"file://{tmp_path}/my%20files"):
        assert open_files(url).get("a") == b"1"


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("", "cannot hold files"),
        ("/", "cannot hold files"),
        ("file://host/path", "three slashes"),
        ("file:///path?endpoint=x", "three slashes"),
        ("gs://bucket", "no file store for gs://"),
        ("s3://", "names no bucket"),
        ("s3://key:hunter2@bucket", "credentials do not belong in the URL"),
        ("s3://bucket?endpiont=https://x", "no option 'endpiont'"),
        ("s3://bucket?allow_http=maybe", "allow_http is true or false"),
        ("s3://bucket?credentials=env", "credentials is instance"),
        ("s3://bucket?endpoint=http://minio:9000", "does not use TLS"),
        ("s3://bucket?endpoint=http://minio:9000&allow_http=false", "does not use TLS"),
    ],
)
def test_an_unusable_url_is_refused_with_the_reason(url: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as refused:
        open_files(url)
    assert "hunter2" not in str(refused.value)


def test_plain_http_in_the_environment_must_be_allowed_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://minio:9000")
    with pytest.raises(ConfigError, match="does not use TLS"):
        open_files("s3://bucket")
    open_files("s3://bucket?allow_http=true")
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    open_files("s3://bucket")


def test_a_prefix_is_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    open_files("s3://bucket/a/b/?region=eu-west-1")
    with pytest.raises(InvalidObjectKey):
        open_files("s3://bucket/a/../b")


@pytest.mark.parametrize(
    ("url", "missing", "reason"),
    [
        ("s3://bucket", AWS[:2], "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are not set"),
        ("s3://bucket", AWS[:1], "AWS_ACCESS_KEY_ID is not set"),
        ("s3://bucket?credentials=instance", AWS[1:2], "AWS_SECRET_ACCESS_KEY is not set"),
    ],
)
def test_missing_credentials_are_reported_at_once(
    url: str, missing: tuple[str, ...], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in missing:
        monkeypatch.delenv(name)
    with pytest.raises(CredentialsMissing, match=reason):
        open_files(url)


def test_credentials_of_a_role_need_no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in AWS[:2]:
        monkeypatch.delenv(name)
    open_files("s3://bucket?credentials=instance")
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", "/var/run/token")
    open_files("s3://bucket")


def test_a_bucket_needs_its_extra_and_a_directory_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    monkeypatch.delitem(sys.modules, "holdfast_files.s3", raising=False)
    with pytest.raises(MissingExtra, match=r'pip install "holdfast-jobs\[files\]"'):
        open_files("s3://bucket")
    assert open_files(tmp_path).put("a", b"1").size == 1
