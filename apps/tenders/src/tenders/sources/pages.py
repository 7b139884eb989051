"""The buyers' web pages: lists of tenders for people, read by their marks."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from datetime import UTC, date, datetime
from html.parser import HTMLParser

from tenders.regions import region_code
from tenders.sources.api import ZONE
from tenders.sources.fetching import Fetcher
from tenders.sources.found import Findings, FoundTender, SourceFailed

_CODE = re.compile(r"\d+-\d+-[A-Z][A-Z0-9]\d{2}")
_PESOS = re.compile(r"^\$?\s*(\d{1,3}(?:\.\d{3})*|\d+)$")
_CATEGORY = re.compile(r"^(\d{2})")


class PageSource:
    """Reads the newest pages of the list; each page is worth something without the others."""

    name = "pages"

    def __init__(self, fetcher: Fetcher, url: str, pages: int) -> None:
        """Read a number of pages at a URL."""
        self._fetcher = fetcher
        self._url = url
        self._pages = pages

    async def find(self, days: Sequence[date]) -> Findings:
        """Return what the newest pages list, of whichever day."""
        findings = Findings()
        await asyncio.gather(*(self._read(each, findings) for each in range(1, self._pages + 1)))
        return findings

    async def complete(self, tender: FoundTender) -> FoundTender:
        """Return it as it is: a page says all it knows."""
        return tender

    async def _read(self, page: int, findings: Findings) -> None:
        try:
            body = await self._fetcher.get(self._url, {"pagina": str(page)})
            tenders, incomplete = read_page(body)
        except SourceFailed as error:
            findings.failures.append(f"page {page}: {error}")
            return
        findings.tenders += tenders
        findings.failures += [f"page {page}: {each}" for each in incomplete]


def read_page(body: bytes) -> tuple[list[FoundTender], list[str]]:
    """Return the tenders of a page, and what is wrong with others. Raises: SourceFailed for anything but a list."""
    reader = _PageReader()
    reader.feed(body.decode("utf-8", errors="replace"))
    reader.close()
    if not reader.is_list:
        raise SourceFailed("not a list of tenders")
    found, wrong = [], []
    for fields in reader.tenders:
        code = fields.get("code", "")
        if _CODE.fullmatch(code):
            found.append(_tender(code, fields))
        else:
            wrong.append(f"a tender with the code {code[:40]!r}")
    return found, wrong


class _PageReader(HTMLParser):
    """Collects the texts of a page by what they are: a heading, or the definition of a term."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.is_list = False
        self.tenders: list[dict[str, str]] = []
        self._is_inside = False
        self._mark: str | None = None
        self._term = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "section" and given.get("id") == "resultados":
            self.is_list = True
        elif tag == "article" and "licitacion" in given.get("class", "").split():
            self.tenders.append({"code": given.get("data-codigo", "").strip()})
            self._is_inside = True
        elif self._is_inside and tag in ("h2", "dt", "dd"):
            self._mark = tag
            if tag == "dt":
                self._term = ""

    def handle_endtag(self, tag: str) -> None:
        if tag == "article":
            self._is_inside = False
        if tag in ("article", "h2", "dt", "dd"):
            self._mark = None

    def handle_data(self, data: str) -> None:
        if not self._is_inside or self._mark is None:
            return
        if self._mark == "dt":
            self._term += data.strip().lower()
            return
        name = "title" if self._mark == "h2" else self._term
        fields = self.tenders[-1]
        fields[name] = fields.get(name, "") + data


def _tender(code: str, fields: dict[str, str]) -> FoundTender:
    known = {name: " ".join(text.split()) for name, text in fields.items()}
    category = _CATEGORY.match(known.get("rubro", ""))
    return FoundTender(
        code=code,
        sources=("pages",),
        title=known.get("title") or None,
        buyer=known.get("organismo") or None,
        region=region_code(known.get("región", "")),
        category=category[1] if category else None,
        amount=_pesos(known.get("monto", "")),
        published_at=_moment(known.get("publicación", "")),
        closes_at=_moment(known.get("cierre", "")),
    )


def _pesos(text: str) -> int | None:
    """Read an amount as Chile writes it, as in $ 12.500.000."""
    found = _PESOS.match(text)
    return int(found[1].replace(".", "")) or None if found else None


def _moment(text: str) -> datetime | None:
    try:
        return datetime.strptime(text, "%d-%m-%Y %H:%M").replace(tzinfo=ZONE).astimezone(UTC)
    except ValueError:
        return None
