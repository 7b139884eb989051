"""The tutorial in an empty environment, installed as it says: nothing of this project is there but the wheel."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs import test_tutorial as tutorial
from tests.docs.newcomer import PATIENCE_S
from tests.docs.snippets import blocks
from tests.docs.walk import walking

PACKAGE = "../holdfast["

pytestmark = [pytest.mark.packaging, pytest.mark.timeout(2 * PATIENCE_S)]


def installation(wheel: Path, section: str) -> list[str]:
    """The lines of the page that install something, in the block that mentions a text, from the wheel."""
    (block,) = [each for each in blocks(tutorial.PAGE) if section in each.text]
    text = block.text.replace(PACKAGE, f"{wheel}[")
    # Our other packages come from the wheel's folder.
    lines = text.replace("pip install ", f"pip install --find-links {wheel.parent} ").splitlines()
    assert any(str(wheel) in each for each in lines)
    return lines


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_the_tutorial_works_with_what_it_installs(
    wheel: Path, tmp_path: Path, database: str, request: pytest.FixtureRequest
) -> None:
    folder = tmp_path / "billing-service"
    alone = {"PYTHONPATH": ""}
    with walking(tmp_path, alone) as reader:
        reader.type("\n".join(installation(wheel, "mkdir billing-service")))
    with walking(folder, alone, folder / ".venv" / "bin") as reader:
        if database == "postgres":
            reader.type(installation(wheel, "export HOLDFAST_URL")[0])
            reader.variables["HOLDFAST_URL"] = str(request.getfixturevalue("postgres_url"))
        printed = tutorial.follow(reader)
    tutorial.check(folder, printed)
