"""Objects in a bucket of an S3-compatible store, through obstore; the checksum is kept as the object's metadata."""

from __future__ import annotations

import hashlib
import hmac
import os
import re
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, urlsplit

from holdfast.core.errors import InvalidOption, MissingExtra
from holdfast_files.backend import DEFAULT_TYPE, ListedFile, ObjectReader, StoredFile, known_sha256
from holdfast_files.content import BLOCK, Content
from holdfast_files.errors import (
    AccessDenied,
    BucketNotFound,
    CredentialsMissing,
    FilesUnreachable,
    ObjectCorrupted,
    ObjectNotFound,
)
from holdfast_files.links import attachment

try:
    import obstore
    from obstore import exceptions
    from obstore.store import S3Store
except ImportError as error:
    raise MissingExtra(
        "files in S3 need obstore", help='pip install "holdfast-jobs[files]"'
    ) from error

if TYPE_CHECKING:
    from obstore import GetResult
    from obstore.store import ClientConfig, RetryConfig

PART = 8 * 1024 * 1024
"""Larger objects are uploaded in parts of at least this size; a store takes at most 10,000."""

_MAX_PARTS = 9_000
_PARALLEL_PARTS = 3
_CHECKSUM = "sha256"
_DENIED = re.compile(r"status code: 40[13]\b")
_CODE = re.compile(r"<Code>(\w+)</Code>")
_CLIENT: ClientConfig = {
    "connect_timeout": timedelta(seconds=5),
    "read_timeout": timedelta(seconds=30),
    # Of a whole request, with the body of a large object on a slow line.
    "timeout": timedelta(hours=1),
}
_RETRIES: RetryConfig = {
    "max_retries": 3,
    "retry_timeout": timedelta(seconds=15),
    "backoff": {
        "init_backoff": timedelta(milliseconds=100),
        "max_backoff": timedelta(seconds=2),
        "base": 2,
    },
}
_ROLES = (
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)


def open_bucket(
    bucket: str,
    prefix: str,
    *,
    endpoint: str | None,
    region: str | None,
    allow_http: bool,
    instance_credentials: bool,
) -> BucketBackend:
    """Return the backend for a bucket; nothing is sent before its first use. Raises: CredentialsMissing."""
    _check_credentials(os.environ, instance_credentials)
    config: dict[str, Any] = {"endpoint": endpoint, "region": region}
    store = S3Store(
        bucket,
        prefix=prefix or None,
        client_options={**_CLIENT, "allow_http": allow_http},
        retry_config=_RETRIES,
        **{name: value for name, value in config.items() if value},
    )
    return BucketBackend(store, bucket)


class BucketBackend:
    """See `backend.FileBackend`."""

    def __init__(self, store: S3Store, bucket: str) -> None:
        self._store = store
        self._bucket = bucket
        self._is_there = False

    def write(self, key: str, content: Content, content_type: str) -> None:
        attributes = {"Content-Type": content_type, _CHECKSUM: content.sha256}
        with self._store_errors(key):
            if content.size <= PART:
                obstore.put(self._store, key, content.read_all(), attributes=attributes)
            else:
                obstore.put(
                    self._store,
                    key,
                    content.blocks(),
                    attributes=attributes,
                    chunk_size=max(PART, content.size // _MAX_PARTS + 1),
                    max_concurrency=_PARALLEL_PARTS,
                )

    def create(self, key: str, content: Content, content_type: str) -> bool:
        # obstore can make only a single request conditional.
        if content.size <= PART:
            try:
                return self._create_small(key, content, content_type)
            except _NoConditions:
                pass
        self.write(key, content, content_type)
        return True

    def head(self, key: str) -> StoredFile:
        return _info(key, self._head(key))

    def stream(self, key: str) -> tuple[StoredFile, Generator[bytes, None, None]]:
        with self._store_errors(key):
            found = obstore.get(self._store, key)
        return _info(key, found), self._blocks(key, found)

    def reader(self, key: str) -> ObjectReader:
        found = self._head(key)
        return _RangeReader(self, _info(key, found), found.meta["e_tag"])

    def read_range(self, key: str, etag: str | None, start: int, end: int) -> bytes:
        """Return a range of one version of an object."""
        with self._store_errors(key):
            found = obstore.get(self._store, key, options={"range": (start, end), "if_match": etag})
            return bytes(found.bytes())

    def delete(self, key: str) -> None:
        with self._store_errors(key):
            try:
                obstore.delete(self._store, key)
            except FileNotFoundError as error:
                if "NoSuchBucket" in str(error):
                    raise

    def entries(self, prefix: str) -> Iterator[ListedFile]:
        with self._store_errors(prefix):
            for page in obstore.list(self._store, prefix or None):
                for each in page:
                    yield ListedFile(each["path"], each["size"], each["last_modified"])

    def url(self, key: str, expires_s: int, filename: str | None, now: float) -> str:
        with self._store_errors(key):
            signed = obstore.sign(self._store, "GET", key, timedelta(seconds=expires_s))
        secret = os.environ.get("AWS_SECRET_ACCESS_KEY")
        access = os.environ.get("AWS_ACCESS_KEY_ID")
        if not secret or not access or not _is_signed_by(signed, access):
            if filename:
                raise InvalidOption(
                    "a file name needs credentials from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
                    help="omit the file name, or set them",
                )
            return signed
        name = filename or key.rpartition("/")[2]
        return _signed_again(
            signed, secret, now, {"response-content-disposition": attachment(name)}
        )

    def _head(self, key: str) -> GetResult:
        with self._store_errors(key):
            try:
                found = obstore.get(self._store, key, options={"head": True})
            except FileNotFoundError:
                # The answer to HEAD has no body, so it does not say what is missing.
                if not self._is_there:
                    obstore.get(self._store, key)
                raise
        self._is_there = True
        return found

    def _create_small(self, key: str, content: Content, content_type: str) -> bool:
        attributes = {"Content-Type": content_type, _CHECKSUM: content.sha256}
        with self._store_errors(key):
            try:
                obstore.put(
                    self._store, key, content.read_all(), attributes=attributes, mode="create"
                )
            except exceptions.AlreadyExistsError:
                return False
            except exceptions.BaseError as error:
                if _code(error) == "NotImplemented":
                    raise _NoConditions from None
                raise
        return True

    def _blocks(self, key: str, found: GetResult) -> Generator[bytes, None, None]:
        with self._store_errors(key):
            yield from found.stream(min_chunk_size=BLOCK)

    @contextmanager
    def _store_errors(self, key: str) -> Iterator[None]:
        """Turn what the client reports into errors with a fix."""
        _check_process()
        try:
            yield
        except (FileNotFoundError, exceptions.BaseError) as error:
            raise self._explain(key, error) from error

    def _explain(self, key: str, error: Exception) -> Exception:
        code = _code(error)
        if code == "NoSuchBucket":
            return BucketNotFound(f"there is no bucket {self._bucket}")
        if isinstance(error, FileNotFoundError):
            return ObjectNotFound(f"there is no object {key}")
        if _is_denied(error):
            return AccessDenied(f"bucket {self._bucket}: {code or 'access denied'}")
        if isinstance(error, exceptions.PreconditionError):
            return ObjectCorrupted(f"{key} was replaced while it was being read", help="try again")
        return FilesUnreachable(f"bucket {self._bucket}: {code or _first_line(error)}")


class _NoConditions(Exception):
    """The store does not know conditional writes."""


class _RangeReader:
    """See `backend.ObjectReader`: every range is of the version that was opened."""

    def __init__(self, backend: BucketBackend, info: StoredFile, etag: str | None) -> None:
        self._backend = backend
        self._etag = etag
        self.info = info

    def read_at(self, start: int, length: int) -> bytes:
        end = min(start + length, self.info.size)
        if start >= end:
            return b""
        return self._backend.read_range(self.info.key, self._etag, start, end)

    def close(self) -> None:
        """Nothing is open between two ranges."""


_used_by: int | None = None
"""The process whose threads obstore uses, from its first request on."""


def _check_process() -> None:
    """Refuse what would wait forever: the client's threads do not survive a fork."""
    global _used_by
    if _used_by is None:
        _used_by = os.getpid()
    elif _used_by != os.getpid():
        raise FilesUnreachable(
            "this process was forked from one that had already used the bucket",
            help="use files only after the fork, or start processes with spawn",
        )


def _check_credentials(environment: Mapping[str, str], instance: bool) -> None:
    pair = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
    missing = [name for name in pair if not environment.get(name)]
    if len(missing) == 1 or (missing and not instance and not any(map(environment.get, _ROLES))):
        raise CredentialsMissing(
            f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not set"
        )


def _info(key: str, found: GetResult) -> StoredFile:
    attributes = found.attributes
    return StoredFile(
        key,
        found.meta["size"],
        known_sha256(attributes.get(_CHECKSUM)),
        attributes.get("Content-Type", DEFAULT_TYPE),
    )


def _code(error: Exception) -> str:
    match = _CODE.search(str(error))
    return match[1] if match else ""


def _is_denied(error: Exception) -> bool:
    # A refused list is reported without a class of its own.
    kinds = (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError)
    return isinstance(error, kinds) or _DENIED.search(str(error)) is not None


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0][:300]


def _is_signed_by(url: str, access: str) -> bool:
    credential = dict(parse_qsl(urlsplit(url).query)).get("X-Amz-Credential", "")
    return credential.startswith(f"{access}/")


def _signed_again(url: str, secret: str, now: float, added: Mapping[str, str]) -> str:
    """Sign a presigned URL (AWS signature version 4) with further parameters, which obstore cannot add."""
    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query))
    access, _, region, service, end = query["X-Amz-Credential"].rsplit("/", 4)
    moment = datetime.fromtimestamp(now, UTC).strftime("%Y%m%dT%H%M%SZ")
    scope = f"{moment[:8]}/{region}/{service}/{end}"
    query |= {**added, "X-Amz-Credential": f"{access}/{scope}", "X-Amz-Date": moment}
    query.pop("X-Amz-Signature")
    canonical = "&".join(f"{_escape(name)}={_escape(query[name])}" for name in sorted(query))
    request = f"GET\n{parts.path}\n{canonical}\nhost:{parts.netloc}\n\nhost\nUNSIGNED-PAYLOAD"
    text = f"AWS4-HMAC-SHA256\n{moment}\n{scope}\n{hashlib.sha256(request.encode()).hexdigest()}"
    key = f"AWS4{secret}".encode()
    for part in (*scope.split("/"), text):
        key = hmac.digest(key, part.encode(), hashlib.sha256)
    return f"{parts.scheme}://{parts.netloc}{parts.path}?{canonical}&X-Amz-Signature={key.hex()}"


def _escape(text: str) -> str:
    return quote(text, safe="-_.~")
