"""What the application itself takes from the environment; Holdfast reads its own variables, cycles their schedules."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import timedelta
from urllib.parse import urlencode

from holdfast.errors import ConfigError, InvalidDuration
from holdfast.settings import FilesUrl, HttpUrl, load_settings, milliseconds, parse_variable

TIME_ZONE = "America/Santiago"
"""The days of the cycles and of the sources are Chile's."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Where tenders come from, where notifications go, how long rows stay."""

    database_url: str
    api_url: str
    api_ticket: str
    pages_url: str
    pages: int
    source_timeout_s: float
    expo_url: str
    expo_access_token: str
    push_timeout_s: float
    push_lease: timedelta
    push_pause: timedelta
    receipt_least_age: timedelta
    receipt_give_up: timedelta
    hot_months: int
    retention_days: int
    archive_bucket: str
    archive_region: str
    archive_endpoint: str
    archive_keep: timedelta

    @property
    def archive_url(self) -> str | None:
        """The bucket, or a directory in its place, as Holdfast's files take it; None without one."""
        if not self.archive_bucket or "/" in self.archive_bucket:
            return self.archive_bucket or None
        plain = "true" if self.archive_endpoint.startswith("http://") else ""
        given = {
            "region": self.archive_region,
            "endpoint": self.archive_endpoint,
            "allow_http": plain,
        }
        query = urlencode({name: value for name, value in given.items() if value})
        return f"s3://{self.archive_bucket}" + (f"?{query}" if query else "")


def read_settings() -> Settings:
    """Read the environment. Rows and runs share one database. Raises: ConfigError."""
    settings = Settings(
        database_url=load_settings().holdfast.url,
        api_url=_url("TENDERS_API_URL", "https://api.mercadopublico.cl/servicios/v1/publico"),
        api_ticket=_text("TENDERS_API_TICKET"),
        pages_url=_url("TENDERS_PAGES_URL"),
        pages=_number("TENDERS_PAGES", 20),
        source_timeout_s=_span("TENDERS_SOURCE_TIMEOUT", "15s").total_seconds(),
        expo_url=_url("EXPO_URL", "https://exp.host/--/api/v2"),
        expo_access_token=_text("EXPO_ACCESS_TOKEN"),
        push_timeout_s=_span("EXPO_TIMEOUT", "15s").total_seconds(),
        push_lease=_span("PUSH_LEASE", "60s", least=timedelta(seconds=1)),
        push_pause=_span("PUSH_PAUSE", "1m"),
        # Expo has most receipts after a quarter of an hour, and keeps them for a day.
        receipt_least_age=_span("RECEIPT_LEAST_AGE", "15m"),
        receipt_give_up=_span("RECEIPT_GIVE_UP", "24h"),
        hot_months=_number("HOT_MONTHS", 12),
        retention_days=_number("DELIVERY_RETENTION_DAYS", 90),
        archive_bucket=_url("ARCHIVE_BUCKET", is_of_files=True),
        archive_region=_text("ARCHIVE_REGION"),
        archive_endpoint=_url("ARCHIVE_ENDPOINT"),
        archive_keep=_span("ARCHIVE_KEEP", "30d"),
    )
    if settings.receipt_give_up <= settings.receipt_least_age:
        raise ConfigError(
            "RECEIPT_GIVE_UP must be longer than RECEIPT_LEAST_AGE",
            help="a ticket would be given up before its receipt is requested",
        )
    return settings


def _text(name: str, default: str = "") -> str:
    return os.environ.get(name, "").strip() or default


def _url(name: str, default: str = "", *, is_of_files: bool = False) -> str:
    text = _text(name, default)
    kind = FilesUrl() if is_of_files else HttpUrl()
    return parse_variable(name, kind, text) if text else ""


def _number(name: str, default: int) -> int:
    text = _text(name, str(default))
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise ConfigError(f"{name}={text[:60]!r} is not a whole number above 0")
    return int(text)


def _span(name: str, default: str, least: timedelta = timedelta(milliseconds=1)) -> timedelta:
    text = _text(name, default)
    try:
        span = timedelta(milliseconds=milliseconds(text))
    except InvalidDuration as error:
        raise ConfigError(f"{name}={text[:60]!r} is not a duration such as {default}") from error
    if span < least:
        raise ConfigError(
            f"{name}={text[:60]!r} is too short; the minimum is {least.total_seconds():g}s"
        )
    return span
