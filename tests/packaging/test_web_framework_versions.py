"""The page about web frameworks again with the oldest versions it promises and the newest, from the wheel."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.newcomer import PATIENCE_S
from tests.docs.web_frameworks import APPLICATIONS, write_page
from tests.packaging.environment import installed

pytestmark = [pytest.mark.packaging, pytest.mark.timeout(4 * PATIENCE_S)]

VERSIONS = {
    "oldest": ["quart~=0.19.0", "litestar~=2.0.0", "flask~=3.0.0"],
    "newest": ["quart", "litestar", "flask"],
}


@pytest.mark.parametrize("version", VERSIONS)
def test_the_applications_of_the_page_run_with_this_version(
    version: str, wheel: Path, tmp_path: Path
) -> None:
    environment = installed(wheel, "web", tmp_path, packages=[*VERSIONS[version], "uvicorn"])
    write_page(environment.folder)
    for each in APPLICATIONS:
        for old in environment.folder.glob("holdfast.db*"):
            old.unlink()
        environment.succeed("holdfast", "migrate", "--app", f"{each.module}:jobs")
        each.try_out(environment.python, environment.folder)
