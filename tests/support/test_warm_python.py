"""Commands that are forked from a warm process are like those that are started."""

import asyncio
import os
import signal
import socket
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.until import PATIENCE_S, until
from tests.support.warm_python import LIBRARIES

SEEN = """
import atexit, os, random, sys

for each in (sys.stdin, sys.stdout, sys.stderr):
    each.reconfigure(errors="backslashreplace")

atexit.register(print, "bye")
print(sys.argv[1:], os.getcwd(), os.environ.get("GIVEN"), sys.path[0], __name__, random.random())
print("warned", file=sys.stderr)
sys.exit(int(sys.argv[1]))
"""
SLEEP = "import time; print('asleep', flush=True); time.sleep(600)"
ENV = {"PATH": os.environ["PATH"], "GIVEN": "x"}


def run(place: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run Python with a variable of its own."""
    return LIBRARIES.run(words, place, ENV)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory with a module `seen`."""
    (tmp_path / "seen.py").write_text(SEEN)
    return tmp_path


@pytest.mark.parametrize(
    ("words", "path"),
    [(("-m", "seen"), "{}"), (("seen.py",), "{}"), (("-c", SEEN), "")],
    ids=["module", "file", "text"],
)
def test_a_command_has_its_words_place_and_variables_and_ends_as_it_would(
    place: Path, words: tuple[str, ...], path: str
) -> None:
    done = run(place, *words, "3", "more")
    shown, bye = done.stdout.splitlines()
    assert shown.startswith(f"['3', 'more'] {place} x {path.format(place)} __main__ ")
    assert (done.returncode, bye, done.stderr) == (3, "bye", "warned\n")


def test_commands_run_at_once_and_draw_numbers_of_their_own(place: Path) -> None:
    with ThreadPoolExecutor() as threads:
        answers = list(threads.map(lambda each: run(place, "-m", "seen", str(each)), range(4)))
    assert [each.returncode for each in answers] == [0, 1, 2, 3]
    assert len({each.stdout.splitlines()[0].split()[-1] for each in answers}) == 4


@pytest.mark.parametrize(
    ("text", "said"), [("1 / 0", "ZeroDivisionError"), ("raise SystemExit('no')", "no")]
)
def test_a_command_that_fails_says_why(place: Path, text: str, said: str) -> None:
    (place / "seen.py").write_text(text)
    done = run(place, "-m", "seen")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(said)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_a_command_that_runs_is_ended_by_a_signal(
    place: Path, number: signal.Signals
) -> None:
    with (place / "said").open("w+") as said:
        process = LIBRARIES.start(["-c", SLEEP], place, ENV, said)
        await until(lambda: (place / "said").read_text())
        assert process.poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.01)
        process.send_signal(number)
        assert process.wait(PATIENCE_S) == -number
        process.kill()


def test_a_signal_to_a_command_that_is_just_ending_is_lost_quietly(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (place / "log").open("w") as log:
        process = LIBRARIES.start(["-m", "seen", "3"], place, ENV, log)
    assert process._connection.recv(1, socket.MSG_PEEK)
    # As if it had ended right after the look.
    monkeypatch.setattr(process, "poll", lambda: None)
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE_S) == 3


async def test_a_command_is_killed_when_its_shell_is(place: Path) -> None:
    pid_file = place / "pid"
    text = f"import os; open('pid', 'w').write(str(os.getpid())); {SLEEP}"
    shell = await asyncio.create_subprocess_exec(
        LIBRARIES.programs() / "python", "-c", text, cwd=place, env=ENV
    )
    await until(lambda: pid_file.exists() and pid_file.read_text())
    shell.kill()
    await shell.wait()
    await until(lambda: not Path(f"/proc/{pid_file.read_text()}").exists())


def test_a_shell_finds_the_programs_and_their_codes(place: Path) -> None:
    text = "python -m seen 0 a | grep -c bye; echo 'print(1)' | python -; python -m seen 4 'b  c' || echo code $?"
    path = f"{LIBRARIES.programs()}{os.pathsep}{ENV['PATH']}"
    said = subprocess.check_output(
        ["sh", "-c", text], cwd=place, env=ENV | {"PATH": path}, text=True
    )
    counted, real, shown, bye, code = said.splitlines()
    assert (counted, real, bye, code) == ("1", "1", "bye", "code 4")
    assert shown.startswith("['4', 'b  c'] ")


def test_what_a_command_says_comes_through_pipes(place: Path) -> None:
    process = LIBRARIES.open(["-m", "seen", "5"], place, ENV | {"PYTHONUNBUFFERED": "1"})
    out, err = process.communicate(PATIENCE_S)
    assert (out.splitlines()[-1], err, process.returncode) == ("bye", "warned\n", 5)
    assert process.communicate() == ("", "")
