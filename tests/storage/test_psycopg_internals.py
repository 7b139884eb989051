"""What Holdfast uses of psycopg without a promise in its documentation: it is all there, and none of it is needed."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import holdfast
from holdfast.storage.postgres.psycopg_internals import MISSING

# What psycopg's documentation does not name, and what goes slower without it.
CONNECTION = {
    "(pgconn)": "a second connection on the pool's session",
    "wait": "knowing what a caller did, without asking the server",
    "lock": "taking turns on a shared session",
    "_prepared": "keeping statements prepared in a shared session",
    "_autocommit": "a second connection that begins what the first is to begin",
    "_isolation_level": "handing a session to another pool",
    "_num_transactions": "refusing commit() on the second connection",
    "_get_tx_start_command": "sending BEGIN in one message with the first statement",
    "_start_query": "leaving BEGIN to the first statement",
}
PARTS = [
    *(("Connection", name) for name in CONNECTION),
    ("PrepareManager", "_names"),
    ("PrepareManager", "_to_flush"),
    ("PGconn", "notice_handler"),
    ("PGconn", "notify_handler"),
    ("psycopg.generators", "execute"),
    ("psycopg.generators", "send"),
    ("psycopg.generators", "fetch_many"),
    ("psycopg.waiting", "Wait"),
    ("psycopg.waiting", "Ready"),
]


def test_the_installed_psycopg_has_every_part() -> None:
    assert MISSING == ()


@pytest.mark.parametrize(("owner", "name"), PARTS, ids=[".".join(each) for each in PARTS])
def test_work_is_started_claimed_and_completed_without(
    postgres_url: str, owner: str, name: str
) -> None:
    command = [sys.executable, "-m", "tests.storage.hidden_parts", owner, name, postgres_url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert any(each.endswith(name) for each in done.stdout.split())


# A dot before an underscore, where what stands before it is not our own object.
PRIVATE = re.compile(r"(?<!self)(?<!cls)\._[a-z]\w*")
UNDOCUMENTED = re.compile(r"psycopg import .*\bgenerators\b|psycopg\.(?:waiting|generators|_\w+)\b")


def test_no_other_module_uses_what_psycopg_does_not_promise() -> None:
    folder = Path(holdfast.__file__).parent
    found = [
        f"{path.name}: {line.strip()}"
        for path in [*folder.glob("storage/postgres/*.py"), folder / "notify/postgres.py"]
        if path.name != "psycopg_internals.py"
        for line in path.read_text().splitlines()
        if PRIVATE.search(line) or UNDOCUMENTED.search(line)
    ]
    assert found == []
