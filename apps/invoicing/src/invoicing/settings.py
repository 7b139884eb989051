"""What the application itself takes from the environment; Holdfast reads its own variables."""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass

from holdfast.errors import ConfigError
from holdfast.settings import FilesUrl, Secret, load_settings, parse_variable
from invoicing.mail import parse_mail_url

MIN_SECRET = 32
"""Characters of the secret that signs download links, as `open_files` demands."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Where the application keeps its rows, its files and its e-mail, and what its invoices are relayed to."""

    database_url: str
    files_url: str
    files_secret: str
    mail_url: str
    mail_from: str
    relay_url: str | None


def read_settings() -> Settings:
    """Read the environment. Rows and jobs share one database, or they could not share a transaction.

    Raises: ConfigError for what could not work, before anything runs.
    """
    settings = Settings(
        database_url=load_settings().holdfast.url,
        files_url=os.environ.get("INVOICING_FILES", "./invoicing-files"),
        # Download links of one process end with it, unless processes share a secret.
        files_secret=os.environ.get("INVOICING_FILES_SECRET") or secrets.token_hex(),
        mail_url=os.environ.get("INVOICING_MAIL", "./invoicing-mail"),
        mail_from=os.environ.get("INVOICING_MAIL_FROM", "billing@invoicing.example"),
        relay_url=os.environ.get("INVOICING_RELAY"),
    )
    parse_mail_url(settings.mail_url)
    parse_variable("INVOICING_FILES", FilesUrl(), settings.files_url)
    parse_variable("INVOICING_FILES_SECRET", Secret(MIN_SECRET), settings.files_secret)
    if not all(settings.mail_from.rpartition("@")):
        raise ConfigError("INVOICING_MAIL_FROM is not an e-mail address")
    if settings.relay_url is not None and not settings.relay_url.startswith(("nats://", "tls://")):
        raise ConfigError(
            "INVOICING_RELAY is not an address of NATS", help="write nats://host:4222"
        )
    return settings
