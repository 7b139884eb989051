"""How e-mail leaves the application: to an SMTP server, or as .eml files into a directory."""

from __future__ import annotations

import asyncio
from email.message import EmailMessage
from pathlib import Path
from urllib.parse import SplitResult, unquote, urlsplit

import aiosmtplib

from holdfast import Permanent
from holdfast.errors import ConfigError

TIMEOUT_S = 20.0


def parse_mail_url(url: str) -> SplitResult | Path:
    """Return the mail server or the directory that a URL names. Raises: ConfigError, without the URL's password."""
    try:
        parts = urlsplit(url)
        is_server = parts.scheme in ("smtp", "smtps") and parts.hostname and parts.port != 0
    except ValueError:
        is_server, parts = False, SplitResult("unreadable", "", "", "", "")
    if is_server:
        return parts
    if not parts.scheme:
        return Path(url)
    if parts.scheme == "file" and parts.path and not parts.netloc:
        return Path(unquote(parts.path))
    raise ConfigError(
        "INVOICING_MAIL names neither a mail server nor a directory",
        help="use smtp://user:password@host:port, smtps://…, a path, or file:///path",
    )


async def send_message(url: str, message: EmailMessage) -> None:
    """Send a message to `smtp://user:password@host:port`, or write it into the directory that `url` names.

    Raises: Permanent when the server refuses it for good; any other error is worth another attempt.
    """
    parts = parse_mail_url(url)
    if isinstance(parts, Path):
        await asyncio.to_thread(_write, parts, message)
        return
    try:
        await aiosmtplib.send(
            message,
            hostname=parts.hostname,
            port=parts.port,
            username=unquote(parts.username) if parts.username else None,
            password=unquote(parts.password) if parts.password else None,
            use_tls=parts.scheme == "smtps",
            timeout=TIMEOUT_S,
        )
    except aiosmtplib.SMTPRecipientsRefused as error:
        if all(each.code >= 500 for each in error.recipients):
            raise Permanent(f"the mail server rejected the recipient: {error}") from error
        raise
    except aiosmtplib.SMTPResponseException as error:
        if error.code >= 500:
            raise Permanent(f"the mail server rejected the message: {error}") from error
        raise


def _write(directory: Path, message: EmailMessage) -> None:
    """Write a file named after the Message-ID: the same message twice is one file."""
    directory.mkdir(parents=True, exist_ok=True)
    name = str(message["Message-ID"]).strip("<>").partition("@")[0]
    unfinished = directory / f".{name}.part"
    unfinished.write_bytes(bytes(message))
    unfinished.replace(directory / f"{name}.eml")
