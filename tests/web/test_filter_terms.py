"""Each term of the filter language is declared once: what reads, queries and explains it follows."""

from __future__ import annotations

from html import escape

import pytest
from click.testing import CliRunner
from docs._ext.reference import filters

from holdfast.admin.access import Role
from holdfast.cli.main import cli
from holdfast.client.pagination import query_of
from holdfast.core.filters import FIELDS, Field, field_of, format_filter, parse_filter
from holdfast.storage.store.pagination import JobQuery
from tests.web.conftest import Api

ID = "0193a6f0-7c00-7abc-8def-0000000000aa"

every_field = pytest.mark.parametrize("field", FIELDS.values(), ids=lambda each: each.name)


def example(field: Field) -> str:
    """A field's example, with an id where it only says where one goes."""
    return field.example.replace(":ID", f":{ID}")


@every_field
def test_a_terms_example_is_read_and_written_the_same(field: Field) -> None:
    (term,) = parse_filter(example(field))
    assert field_of(term.field) is field
    assert term.operator in field.operators
    assert parse_filter(format_filter([term])) == (term,)


@every_field
def test_a_term_narrows_the_query_by_its_own_parameters(field: Field) -> None:
    query = query_of(example(field), 50, None)
    bare = JobQuery()
    changed = {
        name for name in query.__struct_fields__ if getattr(query, name) != getattr(bare, name)
    }
    assert changed
    assert changed <= set(field.params)


def test_the_terms_use_every_condition_of_a_query_once() -> None:
    used = [name for field in FIELDS.values() for name in field.params]
    assert sorted(used) == sorted(set(JobQuery.__struct_fields__) - {"limit", "before"})


@pytest.mark.parametrize("path", ["/api/v1/jobs", "/api/v1/chains"])
async def test_every_term_is_answered_by_both_stores(api: Api, path: str) -> None:
    async with api.client(Role.VIEWER) as client:
        for field in FIELDS.values():
            answer = await client.get(path, params={"filter": example(field)})
            assert (answer.status_code, answer.json()["items"]) == (200, []), field.name


async def test_the_page_of_jobs_explains_every_term(api: Api) -> None:
    page = (await api.call(Role.VIEWER, "GET", "/jobs")).text
    for field in FIELDS.values():
        shown = escape(field.example).replace("&quot;", "&#34;")
        assert f'<dt class="mono">{shown}</dt><dd>{escape(field.text)}</dd>' in page


def test_the_docs_and_the_help_of_commands_explain_every_term() -> None:
    docs = filters.page()
    help = " ".join(CliRunner().invoke(cli, ["jobs", "list", "--help"]).output.split())
    for field in FIELDS.values():
        assert f"| `{field.example}` |" in docs
        assert field.text in docs
        assert f"{field.example} {field.text}" in help
