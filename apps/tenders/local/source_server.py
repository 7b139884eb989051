"""Sources on this machine that speak the formats of the real ones, with generated tenders, and can be made to fail."""

from __future__ import annotations

import html
import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tenders.regions import REGIONS
from tenders.sources.api import PATH, ZONE
from tenders.sources.found import FoundTender

HOST = "127.0.0.1"
TICKET = "a ticket of this machine"
PER_PAGE = 10


@dataclass(slots=True)
class SourceFaults:
    """How a source goes wrong; `slow_s` is how long it thinks, `body` what it answers in place of its format."""

    status: int | None = None
    slow_s: float = 0.0
    body: bytes | None = None
    is_cut: bool = False

    @property
    def is_broken(self) -> bool:
        """Whether it answers with anything but its format."""
        return self.status is not None or self.body is not None or self.is_cut


@dataclass(slots=True)
class SourceServer:
    """Serves an API and pages from threads; its lists and faults may be changed while it serves.

    `only_page` and `only_code` limit a fault to one page, or to the details of one tender.
    """

    api: list[FoundTender] = field(default_factory=list)
    pages: list[FoundTender] = field(default_factory=list)
    api_faults: SourceFaults = field(default_factory=SourceFaults)
    page_faults: SourceFaults = field(default_factory=SourceFaults)
    detail_faults: SourceFaults = field(default_factory=SourceFaults)
    only_page: int | None = None
    only_code: str | None = None
    requests: list[str] = field(default_factory=list)
    _server: ThreadingHTTPServer | None = None
    _closing: threading.Event = field(default_factory=threading.Event)

    def start(self) -> str:
        """Listen on a free port; return the address."""
        self._server = ThreadingHTTPServer((HOST, 0), _handler_of(self))
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return f"http://{HOST}:{self._server.server_address[1]}"

    def close(self) -> None:
        """Stop listening."""
        self._closing.set()
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()

    def variables(self, address: str) -> dict[str, str]:
        """Return the application's settings for these sources."""
        return {
            "TENDERS_API_URL": f"{address}/api",
            "TENDERS_API_TICKET": TICKET,
            "TENDERS_PAGES_URL": f"{address}/licitaciones",
        }

    def respond(self, path: str, query: dict[str, str]) -> tuple[int, bytes, SourceFaults]:
        """Return status, body and the faults that apply to a request."""
        if path == "/licitaciones":
            page = int(query.get("pagina", "1"))
            hit = self.only_page in (None, page)
            return 200, self._page(page), self.page_faults if hit else SourceFaults()
        if path != f"/api{PATH}":
            return 404, b"", SourceFaults()
        if query.get("ticket") != TICKET:
            return 401, b'{"Codigo": 203, "Mensaje": "Ticket no valido."}', SourceFaults()
        if "codigo" in query:
            hit = self.only_code in (None, query["codigo"])
            faults = self.detail_faults if hit else SourceFaults()
            return 200, self._details(query["codigo"]), faults
        return 200, self._day(query.get("fecha", "")), self.api_faults

    def wait(self, seconds: float) -> None:
        """Think for a while, or until the server closes."""
        self._closing.wait(seconds)

    def _day(self, day: str) -> bytes:
        listed = [
            {
                "CodigoExterno": each.code,
                "Nombre": each.title,
                "CodigoEstado": 5,
                "FechaCierre": _local(each.closes_at),
            }
            for each in self.api
            if each.published_at and f"{each.published_at.astimezone(ZONE):%d%m%Y}" == day
        ]
        return _answer(listed)

    def _details(self, code: str) -> bytes:
        return _answer([_details(each) for each in self.api if each.code == code])

    def _page(self, page: int) -> bytes:
        shown = self.pages[(page - 1) * PER_PAGE : page * PER_PAGE]
        articles = "\n".join(map(_article, shown))
        return (
            "<!doctype html><html lang=es><title>Licitaciones</title><body>"
            f'<section id="resultados">{articles}</section></body></html>'
        ).encode()


def _handler_of(source: SourceServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            url = urlsplit(self.path)
            source.requests.append(self.path)
            query = {name: values[-1] for name, values in parse_qs(url.query).items()}
            status, body, faults = source.respond(url.path, query)
            source.wait(faults.slow_s)
            body = body if faults.body is None else faults.body
            self.send_response(faults.status or status)
            # Half of what is announced: the connection ends in the middle of it.
            self.send_header("Content-Length", str(len(body) * 2 if faults.is_cut else len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    return Handler


def _answer(listed: Sequence[dict[str, Any]]) -> bytes:
    return json.dumps({"Cantidad": len(listed), "Version": "v1", "Listado": listed}).encode()


def _details(tender: FoundTender) -> dict[str, Any]:
    category = f"{tender.category}000000" if tender.category else None
    return {
        "CodigoExterno": tender.code,
        "Nombre": tender.title,
        "Descripcion": tender.description,
        "CodigoEstado": 5,
        "Comprador": {
            "NombreOrganismo": tender.buyer,
            "RegionUnidad": f"Región de {REGIONS[tender.region]}" if tender.region else None,
        },
        "Fechas": {
            "FechaPublicacion": _local(tender.published_at),
            "FechaCierre": _local(tender.closes_at),
        },
        "MontoEstimado": tender.amount,
        "Moneda": "CLP",
        "Items": {"Cantidad": 1, "Listado": [{"CodigoCategoria": category}]},
    }


def _article(tender: FoundTender) -> str:
    terms: dict[str, str | None] = {
        "Organismo": tender.buyer,
        "Región": REGIONS[tender.region] if tender.region else None,
        "Rubro": f"{tender.category} Rubro" if tender.category else None,
        "Monto": f"$ {tender.amount:,}".replace(",", ".") if tender.amount else "No informado",
        "Publicación": _shown(tender.published_at),
        "Cierre": _shown(tender.closes_at),
    }
    listed = "".join(
        f"<dt>{term}</dt><dd>{html.escape(text)}</dd>" for term, text in terms.items() if text
    )
    title = html.escape(tender.title or "")
    return (
        f'<article class="licitacion" data-codigo="{html.escape(tender.code)}">'
        f"<h2>{title}</h2><dl>{listed}</dl></article>"
    )


def _local(moment: datetime | None) -> str | None:
    return None if moment is None else f"{moment.astimezone(ZONE):%Y-%m-%dT%H:%M:%S}"


def _shown(moment: datetime | None) -> str | None:
    return None if moment is None else f"{moment.astimezone(ZONE):%d-%m-%Y %H:%M}"
