"""The buyers' public API: a list of each day's tenders, and the details of one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, date, datetime
from typing import Any
from zoneinfo import ZoneInfo

import msgspec

from tenders.regions import region_code
from tenders.settings import TIME_ZONE
from tenders.sources.fetching import Fetcher
from tenders.sources.found import Findings, FoundTender, SourceFailed

ZONE = ZoneInfo(TIME_ZONE)
PATH = "/licitaciones.json"


class _Buyer(msgspec.Struct, rename={"organisation": "NombreOrganismo", "region": "RegionUnidad"}):
    organisation: str | None = None
    region: str | None = None


class _Dates(msgspec.Struct, rename={"published": "FechaPublicacion", "closes": "FechaCierre"}):
    published: str | None = None
    closes: str | None = None


class _Item(msgspec.Struct, rename={"category": "CodigoCategoria"}):
    category: str | int | None = None


class _Items(msgspec.Struct, rename={"listed": "Listado"}):
    listed: list[_Item] = []


class _Entry(
    msgspec.Struct,
    rename={
        "code": "CodigoExterno",
        "title": "Nombre",
        "description": "Descripcion",
        "closes": "FechaCierre",
        "buyer": "Comprador",
        "dates": "Fechas",
        "amount": "MontoEstimado",
        "currency": "Moneda",
        "items": "Items",
    },
):
    """A tender in an answer: the list has the first few fields, the details have all."""

    code: str
    title: str | None = None
    description: str | None = None
    closes: str | None = None
    buyer: _Buyer | None = None
    dates: _Dates | None = None
    amount: float | None = None
    currency: str | None = None
    items: _Items | None = None


class _Answer(msgspec.Struct, rename={"listed": "Listado"}):
    listed: list[msgspec.Raw]


class ApiSource:
    """Asks the API with a ticket, which it gives to everyone who registers."""

    name = "api"

    def __init__(self, fetcher: Fetcher, url: str, ticket: str) -> None:
        """Ask the API at a URL."""
        self._fetcher = fetcher
        self._url = url.rstrip("/") + PATH
        self._ticket = ticket

    async def find(self, days: Sequence[date]) -> Findings:
        """See `TenderSource.find`."""
        findings = Findings()
        await asyncio.gather(*(self._find_day(each, findings) for each in days))
        return findings

    async def complete(self, tender: FoundTender) -> FoundTender:
        """See `TenderSource.complete`."""
        for entry in _entries(await self._get(codigo=tender.code)):
            found = _read(entry)
            if found.code == tender.code:
                return found
        raise SourceFailed(f"the details of {tender.code} are those of another tender, or empty")

    async def _find_day(self, day: date, findings: Findings) -> None:
        try:
            entries = _entries(await self._get(fecha=f"{day:%d%m%Y}"))
        except SourceFailed as error:
            findings.failures.append(f"{day}: {error}")
            return
        for entry in entries:
            try:
                findings.tenders.append(_read(entry))
            except SourceFailed as error:
                findings.failures.append(f"{day}: {error}")

    async def _get(self, **params: str) -> bytes:
        return await self._fetcher.get(self._url, {**params, "ticket": self._ticket})


def _entries(body: bytes) -> list[msgspec.Raw]:
    try:
        return msgspec.json.decode(body, type=_Answer).listed
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise SourceFailed(f"not the API's format: {error}") from error


def _read(raw: msgspec.Raw) -> FoundTender:
    try:
        entry = msgspec.json.decode(raw, type=_Entry, strict=False)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise SourceFailed(f"not a tender: {error}") from error
    if not entry.code.strip():
        raise SourceFailed("a tender without a code")
    buyer, dates = entry.buyer or _Buyer(), entry.dates or _Dates()
    categories = [each.category for each in entry.items.listed] if entry.items else []
    return FoundTender(
        code=entry.code.strip(),
        sources=("api",),
        title=_text(entry.title),
        description=_text(entry.description),
        buyer=_text(buyer.organisation),
        region=region_code(buyer.region or ""),
        category=next((str(each)[:2] for each in categories if each), None),
        amount=_pesos(entry.amount, entry.currency),
        published_at=_moment(dates.published),
        closes_at=_moment(dates.closes or entry.closes),
    )


def _text(value: Any) -> str | None:
    return (value or "").strip() or None


def _pesos(amount: float | None, currency: str | None) -> int | None:
    """Return an amount in pesos; one in another currency cannot be compared with what people asked for."""
    return round(amount) if amount and amount > 0 and (currency or "CLP") == "CLP" else None


def _moment(text: str | None) -> datetime | None:
    """Read a time of Chile, which the API writes without a zone; one that cannot be read is unknown."""
    try:
        moment = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=ZONE)).astimezone(UTC)
