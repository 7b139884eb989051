"""Where people look, a large value is its size and digest, and a way to read it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from holdfast import Holdfast, Job, Permanent
from holdfast.admin.access import Role
from holdfast.cli.main import cli
from holdfast.settings import read_settings
from holdfast.web.app import create
from holdfast_files import Files, add_large_values
from holdfast_testing.kit import Kit
from tests.large_values.conftest import add_types, letter, start, stored_files
from tests.web.conftest import Api

LARGE = letter(10_000)
APPLICATION = """
import os
from holdfast import Holdfast
from holdfast_files import add_large_values
from tests.large_values.conftest import add_types

app = Holdfast(os.environ["LARGE_URL"])
add_large_values(app, os.environ["LARGE_FILES"], over="4KB")
add_types(app)
"""


@pytest.fixture
def app_name(
    url: str, tmp_path: Path, directory_files: Files, monkeypatch: pytest.MonkeyPatch
) -> str:
    """An importable application with large values in the same files."""
    name = f"large_app_{tmp_path.name}".replace("-", "_")
    (tmp_path / f"{name}.py").write_text(APPLICATION)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("LARGE_URL", url)
    monkeypatch.setenv("LARGE_FILES", str(tmp_path / "files"))
    return f"{name}:app"


def call(app: str, *words: str, code: int = 0) -> Any:
    result = CliRunner().invoke(cli, [*words, "--app", app])
    assert result.exit_code == code, result.output
    return result.stdout if code == 0 else result.output


def test_the_command_line_shows_a_reference_and_writes_the_value(
    kit: Kit, app_name: str, directory_files: Files
) -> None:
    chain = start(kit, "echo", LARGE)
    kit.run_until_idle()
    shown = json.loads(call(app_name, "jobs", "show", str(chain.id), "-o", "json"))
    assert shown["input"]["large"]["size"] == 10_011
    assert len(shown["output"]["large"]["sha256"]) == 64
    assert json.loads(call(app_name, "large-values", "get", str(chain.id))) == LARGE
    assert json.loads(call(app_name, "large-values", "get", str(chain.id), "--result")) == LARGE
    (key,) = stored_files(directory_files)
    directory_files.delete(key)
    assert "HF211" in call(app_name, "large-values", "get", str(chain.id), code=3)
    # What only names it does not need it.
    assert "large" in call(app_name, "jobs", "show", str(chain.id))


def test_redriving_keeps_the_reference(url: str, directory_files: Files) -> None:
    app = Holdfast(url)
    add_large_values(app, directory_files, over="4KB")
    is_broken = [True]

    @app.job("fragile")
    async def fragile(job: Job[dict[str, str]]) -> int:
        if is_broken:
            raise Permanent("broken")
        return len(job.input["text"])

    kit = Kit(app, url)
    chain = start(kit, "fragile", LARGE)
    kit.run_until_idle()
    assert app.chains.get(chain).state == "failed"
    is_broken.clear()
    with app.transaction() as tx:
        app.chains.retry(tx, chain)
    kit.run_until_idle()
    assert app.chains.wait(chain, timeout="5s").output == 10_000
    assert len(stored_files(directory_files)) == 1
    app.close()


def test_replaying_an_event_keeps_the_reference(url: str, directory_files: Files) -> None:
    first = Holdfast(url)
    add_large_values(first, directory_files, over="4KB")
    add_types(first)
    kit = Kit(first, url)
    with first.transaction() as tx:
        first.publish(tx, "uploaded", LARGE)
    kit.run_until_idle()
    second = Holdfast(url)
    add_large_values(second, directory_files, over="4KB")

    @second.on("uploaded", name="late", since="2020-01-01")
    async def late(job: Job[dict[str, str]]) -> int:
        return len(job.input["text"])

    later = Kit(second, url)
    later.run_until_idle()
    (job,) = [each for each in second.jobs.list() if each.type == "uploaded/late"]
    assert second.chains.wait(job.chain_id, timeout="5s").output == 10_000
    assert len(stored_files(directory_files)) == 1
    first.close()
    second.close()


async def test_http_and_the_page_link_to_the_whole_value(url: str, directory_files: Files) -> None:
    app = Holdfast(url)
    add_large_values(app, directory_files, over="4KB")
    add_types(app)
    kit = Kit(app, url)
    async with app.transaction() as tx:
        chain = await app.start(tx, "echo", LARGE)
    await kit.run_until_idle_async()
    served = create(app, settings=read_settings({}))
    api = Api(served, app)
    async with api.client(Role.DEVELOPER) as http:
        shown = (await http.get(f"/api/v1/jobs/{chain.id}")).json()
        assert set(shown["job"]["output"]) == {"large"}
        for side in ("input", "output"):
            found = await http.get(f"/api/v1/jobs/{chain.id}/{side}")
            assert (found.status_code, found.json()) == (200, LARGE)
        assert "aaaaaaaa" not in (await http.get("/api/v1/jobs")).text
        page = (await http.get(f"/jobs/{chain.id}")).text
        assert f"/api/v1/jobs/{chain.id}/output" in page
        assert "aaaaaaaa" not in page
    refused = await api.call(Role.VIEWER, "GET", f"/api/v1/jobs/{chain.id}/input")
    assert refused.status_code == 403
    await served.state.site.close()
    await app.aclose()
