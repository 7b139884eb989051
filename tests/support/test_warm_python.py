"""Commands that are forked from a warm process are like those that are started."""

import asyncio
import os
from pathlib import Path

import pytest

from tests.support.warm_python import LIBRARIES

SEEN = """
import atexit, os, random, sys

atexit.register(print, "bye")
print(sys.argv[1:], os.getcwd(), os.environ.get("GIVEN"), sys.path[0], __name__, random.random())
print("warned", file=sys.stderr)
sys.exit(int(sys.argv[1]))
"""


async def run(place: Path, *words: str) -> tuple[int, str, str]:
    """Run the module `seen` with a variable of its own."""
    return await LIBRARIES.run(["seen", *words], place, {"PATH": os.environ["PATH"], "GIVEN": "x"})


async def test_a_command_has_its_words_place_and_variables_and_ends_as_it_would(
    tmp_path: Path,
) -> None:
    (tmp_path / "seen.py").write_text(SEEN)
    code, out, err = await run(tmp_path, "3", "more")
    shown, bye = out.splitlines()
    assert shown.startswith(f"['3', 'more'] {tmp_path} x {tmp_path} __main__ ")
    assert (code, bye, err) == (3, "bye", "warned\n")


async def test_commands_run_at_once_and_draw_numbers_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "seen.py").write_text(SEEN)
    answers = await asyncio.gather(*(run(tmp_path, str(each)) for each in range(4)))
    assert [code for code, _, _ in answers] == [0, 1, 2, 3]
    assert len({out.splitlines()[0].split()[-1] for _, out, _ in answers}) == 4


@pytest.mark.parametrize(
    ("text", "said"),
    [("1 / 0", "ZeroDivisionError"), ("raise SystemExit('no')", "no")],
)
async def test_a_command_that_fails_says_why(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "seen.py").write_text(text)
    code, _, err = await run(tmp_path)
    assert code == 1
    assert err.splitlines()[-1].startswith(said)
