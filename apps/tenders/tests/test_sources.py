"""The API and the pages: what they say, what they leave out, and how they fail."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from apps.tenders.local.source_server import SourceFaults, SourceServer

from tenders.generated import generate_tender
from tenders.regions import REGIONS, region_code
from tenders.settings import Settings, read_settings
from tenders.sources.found import Findings, FoundTender, SourceFailed, merge
from tenders.sources.opening import open_sources
from tenders.sources.pages import read_page

NOON = datetime(2026, 11, 16, 15, tzinfo=UTC)
TODAY = NOON.date()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[SourceServer]:
    """Sources with 25 tenders, in both lists."""
    server = SourceServer()
    server.api = [generate_tender(number, NOON) for number in range(25)]
    server.pages = list(server.api)
    for name, value in server.variables(server.start()).items():
        monkeypatch.setenv(name, value)
    yield server
    server.close()


def settings(timeout_s: float = 10) -> Settings:
    """Return the settings of the environment, with another timeout."""
    return replace(read_settings(), source_timeout_s=timeout_s)


async def find(timeout_s: float = 10) -> dict[str, Findings]:
    """Ask all sources."""
    async with open_sources(settings(timeout_s)) as sources:
        return {each.name: await each.find([TODAY]) for each in sources}


async def test_the_api_lists_a_day_and_tells_all_in_its_details(server: SourceServer) -> None:
    found = (await find())["api"]
    assert [each.code for each in found.tenders] == [each.code for each in server.api]
    assert found.tenders[0].region is None
    async with open_sources(settings()) as (api, _):
        assert await api.complete(found.tenders[0]) == server.api[0]


async def test_the_api_is_asked_with_its_ticket(
    server: SourceServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENDERS_API_TICKET", "another")
    found = (await find())["api"]
    assert found.tenders == []
    assert found.failures == ["2026-11-16: HTTP 401"]


async def test_a_source_without_ticket_or_address_is_not_asked(
    server: SourceServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TENDERS_API_TICKET")
    assert list(await find()) == ["pages"]
    monkeypatch.delenv("TENDERS_PAGES_URL")
    assert await find() == {}


async def test_twenty_pages_are_read(server: SourceServer) -> None:
    found = (await find())["pages"]
    assert sorted(each.code for each in found.tenders) == sorted(each.code for each in server.pages)
    asked = [each for each in server.requests if each.startswith("/licitaciones")]
    assert len(asked) == 20
    expected = {each.code: each for each in server.pages}
    for tender in found.tenders:
        same = replace(expected[tender.code], description=None, sources=("pages",))
        assert tender == same


@pytest.mark.parametrize(
    ("faults", "says"),
    [
        (SourceFaults(status=503), "HTTP 503"),
        (SourceFaults(status=302), "HTTP 302"),
        (SourceFaults(body=b"<html>Mantenimiento</html>"), "not "),
        (SourceFaults(body=b"\xff\xfe\x00"), "not "),
        (SourceFaults(body=b""), "not "),
        (SourceFaults(is_cut=True), "RemoteProtocolError"),
        (SourceFaults(slow_s=30), "no answer within 0.5 s"),
    ],
)
@pytest.mark.parametrize("broken", ["api", "pages"])
async def test_a_source_fails_alone(
    server: SourceServer, faults: SourceFaults, says: str, broken: str
) -> None:
    setattr(server, "api_faults" if broken == "api" else "page_faults", faults)
    found = await find(0.5 if faults.slow_s else 10)
    assert found[broken].tenders == []
    assert found[broken].failures
    assert all(says in each for each in found[broken].failures)
    other = found["pages" if broken == "api" else "api"]
    assert (len(other.tenders), other.failures) == (25, [])


async def test_one_bad_page_costs_only_itself(server: SourceServer) -> None:
    server.page_faults, server.only_page = SourceFaults(status=500), 2
    found = (await find())["pages"]
    assert len(found.tenders) == 15
    assert found.failures == ["page 2: HTTP 500"]


async def test_one_bad_entry_of_the_api_costs_only_itself(server: SourceServer) -> None:
    good = server.respond("/api/licitaciones.json", {"fecha": "16112026", "ticket": "x"})[0]
    assert good == 401
    server.api_faults = SourceFaults(
        body=b'{"Listado": [{"CodigoExterno": "1-1-LE26", "Nombre": "Papel"}, {"Nombre": "Tinta"},'
        b' 7, {"CodigoExterno": " "}, {"CodigoExterno": "1-2-LE26", "Nombre": null}]}'
    )
    found = (await find())["api"]
    assert [each.code for each in found.tenders] == ["1-1-LE26", "1-2-LE26"]
    assert len(found.failures) == 3


async def test_an_endless_answer_is_given_up(
    server: SourceServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tenders.sources.fetching.MAX_ANSWER_BYTES", 100)
    found = await find()
    assert found["api"].failures == ["2026-11-16: more than 100 bytes"]


@pytest.mark.parametrize(
    "body",
    [
        b'{"Listado": []}',
        b'{"Listado": [{"CodigoExterno": "of another", "Nombre": "Papel"}]}',
        b'{"Mensaje": "sin resultados"}',
    ],
)
async def test_details_that_are_not_those_of_the_tender_are_refused(
    server: SourceServer, body: bytes
) -> None:
    server.detail_faults = SourceFaults(body=body)
    async with open_sources(settings()) as (api, _):
        with pytest.raises(SourceFailed):
            await api.complete(server.api[0])


async def test_a_source_gets_few_requests_at_a_time(
    server: SourceServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    most = now = 0

    async def get(self: object, url: str, params: object) -> bytes:
        nonlocal most, now
        now += 1
        most = max(most, now)
        await asyncio.sleep(0)
        now -= 1
        return b'<section id="resultados"></section>'

    monkeypatch.setattr("tenders.sources.fetching.Fetcher._read", get)
    await find()
    assert most == 4


def test_a_page_with_odd_entries_gives_what_can_be_read() -> None:
    found, wrong = read_page(
        """<section id=resultados>
        <article class="licitacion destacada" data-codigo="1-1-LE26"><h2>Caf&eacute; &amp; t&eacute;</h2>
        <dl><dt>Región<dd>Ñuble<dt>Monto</dt><dd>$ 1.250.000</dd><dt>Publicación</dt><dd>mañana</dd>
        <dt>Cierre</dt><dd>31-12-2026 15:00</dd></dl></article>
        <article class="licitacion" data-codigo="<script>"><h2>x</h2></article>
        <article class="aviso"><h2>Noticias</h2></article>
        <article class="licitacion" data-codigo="2-2-LP26"><h2></h2><dl><dt>Monto<dd>UF 300""".encode()
    )
    assert found == [
        FoundTender(
            "1-1-LE26",
            ("pages",),
            title="Café & té",
            region="16",
            amount=1_250_000,
            closes_at=datetime(2026, 12, 31, 18, tzinfo=UTC),
        ),
        FoundTender("2-2-LP26", ("pages",)),
    ]
    assert wrong == ["a tender with the code '<script>'"]


def test_the_more_complete_description_counts_and_the_other_fills_its_gaps() -> None:
    whole = replace(generate_tender(1, NOON), description=None, buyer="The API's", region=None)
    half = FoundTender(whole.code, ("pages",), title="The page's", region="05", buyer="The page's")
    merged = merge([half, whole])
    assert merged == replace(whole, region="05", sources=("api", "pages"))
    assert merge([whole]) == whole


def test_the_kind_of_a_tender_is_in_its_code() -> None:
    kinds = [FoundTender(code, ()).kind for code in ("1057389-12-LE26", "9-1-L126", "nonsense")]
    assert kinds == ["LE", "L1", None]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("Región Metropolitana de Santiago", "13"),
        ("Región de La Araucanía", "09"),
        ("Región de la Araucanía ", "09"),
        ("araucania", "09"),
        ("Región del Biobío", "08"),
        ("Región del Libertador General Bernardo O'Higgins", "06"),
        ("Aysén", "11"),
        ("Región de ", None),
        ("Atlántida", None),
        *((name, code) for code, name in REGIONS.items()),
    ],
)
def test_a_region_is_known_as_people_write_it(text: str, code: str | None) -> None:
    assert region_code(text) == code
