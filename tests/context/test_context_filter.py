"""Jobs found by their context: `context.tenant:acme` in the client, the command line, HTTP and SQL plans."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner

from holdfast import Holdfast, Job
from holdfast.cli.main import cli
from holdfast.core.errors import FilterError
from holdfast.core.filters import format_filter, parse_filter
from holdfast.storage.operation import Statement
from holdfast_testing.kit import Kit


class FilterScene:
    """An application with jobs of three tenants."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.app = Holdfast(url)

        @self.app.job("mail.send")
        def send(job: Job[Any]) -> None: ...

        self.kit = Kit(self.app, url)
        with self.app.transaction() as tx:
            for number in range(6):
                tenant = ("acme", "globex", "two words")[number % 3]
                context = {"tenant": tenant, "user": str(number)}
                self.app.start(tx, "mail.send", number, context=context)
            self.app.start(tx, "mail.send", 6)

    def find(self, filter: str) -> list[int]:
        return [each.input for each in self.app.jobs.list(filter).items]

    def close(self) -> None:
        self.kit.close()
        self.app.close()


@pytest.fixture(params=["postgres", "sqlite"])
def scene(request: pytest.FixtureRequest) -> Iterator[FilterScene]:
    """An application on either database."""
    scene = FilterScene(request.getfixturevalue(f"{request.param}_url"))
    yield scene
    scene.close()


def test_jobs_are_found_by_their_context_the_newest_first(scene: FilterScene) -> None:
    assert scene.find("context.tenant:acme") == [3, 0]
    assert scene.find('context.tenant:"two words"') == [5, 2]
    assert scene.find("context.tenant:acme context.user:3 state:pending") == [3]
    assert scene.find("context.tenant:acme context.user:1") == []
    assert scene.find("context.tenant:nobody") == []


def test_chains_are_found_by_the_context_of_their_first_job(scene: FilterScene) -> None:
    found = scene.app.chains.list("context.tenant:globex").items
    assert [each.input for each in found] == [4, 1]


def test_a_list_is_read_page_by_page(scene: FilterScene) -> None:
    first = scene.app.jobs.list("context.tenant:acme", limit=1)
    second = scene.app.jobs.list("context.tenant:acme", limit=1, after=first.next)
    assert [each.input for each in (*first.items, *second.items)] == [3, 0]


@pytest.mark.parametrize(
    ("filter", "words"),
    [
        ("context.tennant:acme", "tenant"),
        ("context:acme", "not a filter key"),
        ("context.:acme", "not a filter key"),
        ("context.tenant:acme,globex", "takes one value"),
        ("context.tenant>acme", "cannot be combined"),
    ],
)
def test_a_filter_that_cannot_be_meant_is_refused(
    scene: FilterScene, filter: str, words: str
) -> None:
    with pytest.raises(FilterError) as refused:
        scene.find(filter)
    assert words in f"{refused.value.message} {refused.value.help}"


def test_where_no_job_has_a_context_there_is_nothing_to_find(sqlite_url: str) -> None:
    app = Holdfast(sqlite_url)
    assert app.jobs.list("context.tenant:acme").items == ()
    app.close()


def test_a_filter_is_written_as_it_is_read() -> None:
    text = 'context.tenant:"two words" state:failed'
    assert format_filter(parse_filter(text)) == text


def test_the_command_line_finds_and_shows_them(scene: FilterScene) -> None:
    runner = CliRunner()
    listed = runner.invoke(
        cli, ["jobs", "list", "context.tenant:acme", "-o", "json", "--url", scene.url]
    )
    assert listed.exit_code == 0, listed.output
    found = json.loads(listed.stdout)
    found = found["items"] if isinstance(found, dict) else found
    assert [each["context"]["user"] for each in found] == ["3", "0"]
    shown = runner.invoke(cli, ["jobs", "show", found[0]["id"], "--url", scene.url])
    assert "tenant=acme, user=3" in shown.output


def test_an_index_leads_to_the_jobs_of_a_tenant(scene: FilterScene) -> None:
    database = scene.app.database

    def explain() -> Any:
        return (
            yield Statement(
                "job_walk_context",
                {"context_name": "tenant", "context_value": "acme", "before": None, "limit": 5},
            )
        )

    assert len(database.read(explain())) == 2
    if database.store.dialect == "sqlite":
        with scene.app.transaction() as tx:
            plan = tx.execute(
                "explain query plan select job_id from holdfast_job_context"
                " where name = 'tenant' and value = 'acme' and job_id < 'g' order by job_id desc"
            ).fetchall()
        assert "SEARCH" in str(plan)
        assert "TEMP B-TREE" not in str(plan)
