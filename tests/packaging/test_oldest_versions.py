"""FastAPI, Starlette, Celery and cryptography, from the oldest versions that Holdfast promises to the newest."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.newcomer import PATIENCE_S
from tests.docs.snippets import ROOT, Block, blocks
from tests.from_celery.test_celery_project import Shop, broker, run_as_it_is, run_beside
from tests.notify.servers import LeashedServer, redis_server
from tests.packaging.environment import Environment, installed
from tests.support.command import run_command

OLDEST = {"fastapi": "0.121", "starlette": "0.40", "cryptography": "43", "celery": "5.3"}
"""What the packages below are asked for in their oldest versions."""

FASTAPI = ("docs/start/fastapi.md", "web,calls", ("httpx", "sqlalchemy[asyncio]", "aiosqlite"))
SEALED = ("docs/do/sealed.md", "sealed,testing", ())
PAGES = {
    "oldest fastapi": (*FASTAPI, ("fastapi~=0.121.0", "starlette~=0.40.0")),
    "newest fastapi": (*FASTAPI, ("fastapi", "starlette")),
    "oldest cryptography": (*SEALED, ("cryptography~=43.0",)),
    "newest cryptography": (*SEALED, ("cryptography",)),
}
"""Pages to follow: what they need, and the versions of the packages in question."""

CELERIES = {
    # That Celery takes any newer kombu too, which does not work with the redis that it asks for.
    "oldest": ("celery[redis]~=5.3.0", "kombu[redis]~=5.3.0"),
    "newest": ("celery[redis]",),
}


def follow(environment: Environment, page: str) -> None:
    """Do what a page says, from top to bottom, with the programs of an environment."""
    for block in blocks(page):
        if block.file is not None:
            (environment.folder / block.file).write_text(block.text, encoding="utf-8")
        elif (words := words_of(environment, block)) is not None:
            variables = environment.variables() | {"PYTHONPATH": str(environment.folder)}
            done = run_command(words, environment.folder, variables, PATIENCE_S)
            assert done.returncode == 0, f"{block.text}\n{done.stdout}"


def words_of(environment: Environment, block: Block) -> list[str] | None:
    """Return the command that runs a block; None for one that is only to be read."""
    if block.language == "python":
        return [environment.python, "-c", block.text]
    return ["bash", "-euo", "pipefail", "-c", block.text] if block.language == "sh" else None


@pytest.mark.packaging
@pytest.mark.timeout(4 * PATIENCE_S)
@pytest.mark.parametrize("version", PAGES)
def test_a_page_works_with_this_version(version: str, wheel: Path, tmp_path: Path) -> None:
    page, extra, others, packages = PAGES[version]
    environment = installed(wheel, extra, tmp_path, packages=[*others, *packages])
    follow(environment, page)


@pytest.fixture
def redis() -> Iterator[LeashedServer]:
    """A Redis of our own."""
    with redis_server() as server:
        yield server


@pytest.mark.packaging
@pytest.mark.timeout(4 * PATIENCE_S)
@pytest.mark.parametrize("version", CELERIES)
def test_a_celery_project_runs_as_it_is_and_beside_holdfast_with_this_version(
    version: str, wheel: Path, tmp_path: Path, redis: LeashedServer
) -> None:
    python = installed(wheel, "celery", tmp_path, packages=CELERIES[version]).python
    url = f"sqlite:///{tmp_path}/holdfast.db"
    run_as_it_is(Shop(tmp_path / "before", python, SHOP_BROKER=broker(redis)))
    with redis_server() as fresh:
        variables = {"SHOP_BROKER": broker(fresh), "HOLDFAST_URL": url}
        run_beside(Shop(tmp_path / "beside", python, **variables))


def test_the_declared_versions_are_those_that_are_tried() -> None:
    project = tomllib.loads(
        (ROOT / "packages/holdfast-jobs/pyproject.toml").read_text(encoding="utf-8")
    )["project"]
    extras = project["optional-dependencies"]
    assert f"starlette>={OLDEST['starlette']}" in extras["web"]
    assert f"cryptography>={OLDEST['cryptography']}" in extras["sealed"]
    asked = " ".join(each for *_, packages in PAGES.values() for each in packages)
    for name in ("fastapi", "starlette", "cryptography"):
        assert re.search(rf"\b{name}~={re.escape(OLDEST[name])}\.\d", asked), name
    assert f"~={OLDEST['celery']}." in CELERIES["oldest"][0]
    code = (ROOT / "packages/holdfast-jobs/src/holdfast/contrib/fastapi.py").read_text(
        encoding="utf-8"
    )
    assert f"needs FastAPI {OLDEST['fastapi']} or newer" in code
    said = {
        "docs/start/fastapi.md": f"FastAPI {OLDEST['fastapi']} and Starlette {OLDEST['starlette']}",
        "docs/do/from-celery.md": f"Celery {OLDEST['celery']}",
        "docs/do/sealed.md": f"cryptography {OLDEST['cryptography']}",
    }
    for page, words in said.items():
        text = " ".join((ROOT / page).read_text(encoding="utf-8").split())
        assert words in text, page
