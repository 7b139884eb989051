"""Types that use none of what extensions and options add run the same statements, and write as many rows."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from tests.contract.plain_jobs import Taken

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("store", ["postgres", "sqlite"])
def test_plain_jobs_take_the_same_with_everything_in_use_as_with_nothing_installed(
    request: pytest.FixtureRequest, tmp_path: Path, store: str
) -> None:
    url = request.getfixturevalue(f"{store}_url")

    def take(kind: str) -> Taken:
        words = [sys.executable, "-m", "tests.contract.plain_jobs", url, kind, str(tmp_path)]
        done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return msgspec.json.decode(done.stdout, type=Taken)

    bare, used = take("bare"), take("with")
    print(bare, used, sep="\n")
    assert any(name.startswith("job_insert") for name in bare.start)
    assert any(name.startswith(("job_finish", "job_complete")) for name in bare.run)
    assert (used.start, used.run, used.rows) == (bare.start, bare.run, bare.rows)
