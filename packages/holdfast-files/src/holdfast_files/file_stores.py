"""Opens a file store by its URL."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

from holdfast.core.errors import ConfigError
from holdfast_files.backend import FileBackend
from holdfast_files.files import Files
from holdfast_files.keys import check_prefix
from holdfast_files.links import LinkSigner

_OPTIONS = ("allow_http", "credentials", "endpoint", "region")
_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")


def open_files(
    url: str | Path,
    *,
    secret: str | None = None,
    base_url: str = "/files",
    clock: Callable[[], float] = time.time,
) -> Files:
    """Open a local directory (a path or file:///path) or a bucket: s3://bucket/prefix?endpoint=…&region=….

    `secret` signs the download links of a local directory, which begin with `base_url`; S3 signs its own. Credentials
    come from the AWS_* variables. `clock` is for tests. Raises: ConfigError, CredentialsMissing, MissingExtra.
    """
    links = LinkSigner(secret, base_url)
    return Files(_backend(str(url), links), links, clock)


def _backend(url: str, links: LinkSigner) -> FileBackend:
    scheme, found, _ = url.partition("://")
    if not found:
        return _directory(Path(url), links)
    if scheme == "file":
        return _directory(_path_of(url), links)
    if scheme == "s3":
        return _bucket(url)
    raise ConfigError(f"there is no file store for {scheme}://", help=_HELP)


_HELP = "use a path, file:///path, or s3://bucket/prefix?endpoint=…&region=…"


def _path_of(url: str) -> Path:
    parts = urlsplit(url)
    if parts.netloc or parts.query or parts.fragment or not parts.path:
        raise ConfigError(
            "the URL of a local directory has three slashes and no options", help=_HELP
        )
    return Path(unquote(parts.path))


def _directory(root: Path, links: LinkSigner) -> FileBackend:
    if not root.name:
        raise ConfigError(f"{str(root)!r} cannot hold files", help=_HELP)
    from holdfast_files.directory import DirectoryBackend

    # Absolute, so that a later change of the working directory moves nothing.
    return DirectoryBackend(root.absolute(), links)


def _bucket(url: str) -> FileBackend:
    parts = urlsplit(url)
    if "@" in parts.netloc:
        raise ConfigError(
            "credentials do not belong in the URL of a bucket",
            help="set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
        )
    if not parts.netloc:
        raise ConfigError("the URL names no bucket", help=_HELP)
    options = _options(parts.query)
    endpoint = options.get("endpoint") or _from_environment()
    allow_http = options.get("allow_http", os.environ.get("AWS_ALLOW_HTTP", "")).lower() == "true"
    if endpoint and endpoint.startswith("http://") and not allow_http:
        raise ConfigError(
            "the endpoint does not use TLS", help="use https://, or add allow_http=true to the URL"
        )
    from holdfast_files.s3 import open_bucket

    return open_bucket(
        parts.netloc,
        check_prefix(unquote(parts.path).removeprefix("/")),
        endpoint=endpoint,
        region=options.get("region"),
        allow_http=allow_http,
        instance_credentials=options.get("credentials") == "instance",
    )


def _options(query: str) -> dict[str, str]:
    options = dict(parse_qsl(query, keep_blank_values=True))
    unknown = sorted(options.keys() - set(_OPTIONS))
    if unknown:
        raise ConfigError(
            f"a bucket has no option {unknown[0]!r}", help=f"use {', '.join(_OPTIONS)}"
        )
    for name, allowed in (("allow_http", ("true", "false")), ("credentials", ("instance",))):
        if options.get(name, allowed[0]) not in allowed:
            raise ConfigError(f"{name} is {' or '.join(allowed)}, not {options[name]!r}")
    return options


def _from_environment() -> str | None:
    return next(filter(None, map(os.environ.get, _ENDPOINTS)), None)
