"""What `wait` returns has the type that the handler says it returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from holdfast import Continue, Holdfast, Job
from holdfast.errors import OutputInvalid
from holdfast_testing.kit import Kit


@dataclass
class Receipt:
    """What a handler returns."""

    order: int
    cents: int


@pytest.fixture(params=["sqlite_url", "postgres_url"], ids=["sqlite", "postgres"])
def app(request: pytest.FixtureRequest) -> Holdfast:
    """An application on each store in turn."""
    app = Holdfast(request.getfixturevalue(request.param))
    app.migrate()
    return app


def charge(job: Job[int]) -> Receipt | Continue:
    """Charge an order; a large one is continued by another handler."""
    return Continue("order.split", job.input) if job.input > 100 else Receipt(job.input, 250)


def split(job: Job[int]) -> list[int]:
    """Return what another type of output looks like."""
    return [job.input]


def run(app: Holdfast) -> None:
    """Run what is due."""
    Kit(app, app.url).run_until_idle()


@pytest.fixture
def shop(app: Holdfast) -> Holdfast:
    """The application with two types."""
    app.job("order.charge")(charge)
    app.job("order.split")(split)
    return app


def test_what_start_returned_is_waited_for_with_its_type(shop: Holdfast) -> None:
    with shop.transaction() as tx:
        chain = shop.start(tx, charge, 7)
    run(shop)
    done = shop.chains.wait(chain, "5s")
    assert done.output == Receipt(7, 250)
    assert done.output_as(dict) == {"order": 7, "cents": 250}
    assert (done.id, done.state, done.type) == (chain.id, "completed", "order.charge")


def test_an_id_is_waited_for_as_plain_json(shop: Holdfast) -> None:
    with shop.transaction() as tx:
        chain = shop.start(tx, charge, 7)
    run(shop)
    plain = {"order": 7, "cents": 250}
    assert shop.chains.wait(chain.id, "5s").output == plain
    assert shop.chains.wait(str(chain.id), "5s").output == plain
    assert shop.chains.get(chain).output == plain


def test_a_chain_that_another_handler_ended_has_its_plain_output(shop: Holdfast) -> None:
    with shop.transaction() as tx:
        chain = shop.start(tx, charge, 700)
    run(shop)
    assert shop.chains.wait(chain, "5s").output == [700]


async def test_the_async_version_is_typed_too(shop: Holdfast) -> None:
    async with shop.transaction() as tx:
        chains = await shop.start_many(tx, charge, [7, 8])
    await Kit(shop, shop.url).run_until_idle_async()
    outputs: list[Any] = [(await shop.aio.chains.wait(each, "5s")).output for each in chains]
    assert outputs == [Receipt(7, 250), Receipt(8, 250)]


def test_an_output_of_another_type_is_an_error_only_where_it_is_read(shop: Holdfast) -> None:
    with shop.transaction() as tx:
        chain = shop.start(tx, charge, 7)
        shop.chains.complete(tx, chain, {"order": "seven"})
    done = shop.chains.wait(chain, "5s")
    assert done.state == "completed"
    with pytest.raises(OutputInvalid):
        _ = done.output
    assert shop.chains.get(chain).output == {"order": "seven"}
