"""The worker as a process: it runs an application's jobs, obeys signals, and says what it cannot load."""

import json
import re
import signal
import socket
import subprocess
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import httpx
import pytest

from holdfast.cli.exit_codes import Exit
from holdfast.core.ids import short_id
from tests.cli.conftest import Run
from tests.cli.processes import Command
from tests.cli.scene import Scene
from tests.support.terminal import Terminal
from tests.support.until import PATIENCE_S, wait_until

APPLICATION = """
import asyncio
import pathlib
import time
from holdfast import Holdfast, Job, Rate

app = Holdfast()

@app.job("hello")
async def hello(job: Job[dict]) -> str:
    return f"hello {job.input['name']}"

@app.job("slow")
def slow(job: Job[None]) -> str:
    print("slow begins", flush=True)
    job.wait_for_abort(60)
    return "aborted" if job.aborted else "done"

@app.job("held")
async def held(job: Job[None]) -> None:
    print("held begins", flush=True)
    while not pathlib.Path("go").exists():
        await asyncio.sleep(0.05)

@app.on("order.placed")
def mail(job: Job[dict]) -> None:
    print("mailed", flush=True)

@app.job("ask", rates=[Rate(2, "300ms")])
def ask(job: Job[None]) -> None: ...

@app.job("rare", rates=[Rate(2, "1h")])
def rare(job: Job[None]) -> None: ...

nothing = Holdfast()
clockwork = Holdfast()
number = 7

@clockwork.cycle("sweep", every="1s")
async def sweep(tick) -> None:
    print("swept", flush=True)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with an application, to work in."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shop.py").write_text(APPLICATION)
    (tmp_path / "broken.py").write_text("import shop\nraise RuntimeError('no such luck')\n")
    return tmp_path


def drained(*words: str) -> subprocess.CompletedProcess[str]:
    with Command("worker", "shop:app", "--drain", *words) as command:
        out, err = command.process.communicate(timeout=PATIENCE_S)
    return subprocess.CompletedProcess(words, command.process.returncode, out, err)


def test_draining_runs_what_is_due_and_ends(folder: Path, scene: Scene) -> None:
    id = scene.start("hello", input='{"name":"ana"}')
    later = scene.start("unknown")
    done = drained("--name", "w-1", "--slots", "2")
    assert done.returncode == 0, done.stderr
    assert scene.state(id) == "completed"
    assert scene.state(later) == "pending"
    assert "worker=w-1-" in done.stderr
    assert done.stdout == ""


def test_draining_waits_for_short_rates_and_says_what_longer_ones_left(
    folder: Path, scene: Scene, run: Run
) -> None:
    for name in ("ask", "rare"):
        for _ in range(5):
            scene.start(name, input="null")
    scene.start("hello", input='{"name":"ana"}')
    assert run("types", "pause", "hello", "--yes").exit_code == 0
    done = drained()
    assert done.returncode == 0, done.stderr
    left = [line for line in done.stderr.splitlines() if "left " in line]
    assert [line[line.index("left ") :] for line in left] == [
        "left 1 due job of hello, held by a limit or a pause",
        "left 3 due jobs of rare, held by their rate or a pause",
    ]


def test_draining_runs_what_killed_workers_left_however_many_there_were(
    folder: Path, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTBOX_REAPER_INTERVAL_MS", "500")
    scene.worker("hello", ago_s=600)
    id = scene.abandoned("hello", input='{"name":"ana"}')
    done = drained()
    assert done.returncode == 0, done.stderr
    assert "workers may be about to come back; giving them 0.5 s" in done.stderr
    assert scene.state(id) == "completed"


def test_by_default_the_log_sums_up_what_was_done_and_names_each_problem(
    folder: Path, scene: Scene
) -> None:
    for name in ("ana", "bob"):
        scene.start("hello", input=f'{{"name": "{name}"}}')
    bad = scene.start("hello", input="{}")
    lines = drained().stderr.splitlines()
    assert not [line for line in lines if "job_completed" in line or "job_started" in line]
    (retried,) = [line for line in lines if "job_retried" in line]
    assert "WARNING" in retried
    assert bad in retried
    (summary,) = [line for line in lines if "worker_summary" in line]
    assert " completed=2 retried=1 failed=0 " in summary
    assert " types=hello:3 " in summary


@pytest.mark.parametrize("words", [("--log-jobs",), ("--log-level", "debug")])
def test_each_job_is_logged_on_request(folder: Path, scene: Scene, words: tuple[str, ...]) -> None:
    id = scene.start("hello", input='{"name":"ana"}')
    lines = drained(*words).stderr.splitlines()
    for name in ("job_started", "job_completed"):
        assert [id in line for line in lines if name in line] == [True]
    has_other_detail = any("reaper_ran" in line for line in lines)
    assert has_other_detail == ("debug" in words)


def test_only_the_types_that_were_named_are_run(folder: Path, scene: Scene) -> None:
    hello, event = scene.start("hello", input='{"name":"ana"}'), scene.start("order.placed/mail")
    assert drained("--types", "order.*,slow").returncode == 0
    assert (scene.state(hello), scene.state(event)) == ("pending", "completed")


SPEAKING = """
import logging
import sys
import threading
import warnings
from holdfast import Holdfast, Job

app = Holdfast()

def speak(job: Job[None]) -> None:
    logging.getLogger("shop").warning("in a %s", job.type)
    warnings.warn("old")
    thread = threading.Thread(target=lambda: 1 / 0)
    thread.start()
    thread.join()

@app.job("loop")
async def in_a_loop(job: Job[None]) -> None:
    speak(job)

@app.job("thread")
def in_a_thread(job: Job[None]) -> None:
    speak(job)

@app.job("process", executor="process")
def in_a_process(job: Job[None]) -> None:
    speak(job)
"""


def test_json_logs_are_json_from_the_first_line_and_name_the_job_that_speaks(
    folder: Path, scene: Scene
) -> None:
    (folder / "shop.py").write_text(SPEAKING)
    ids = {type: scene.start(type, input="null") for type in ("loop", "thread", "process")}
    done = drained("--log-format", "json", "--probe-port", "0")
    lines = [json.loads(each) for each in done.stderr.splitlines()]
    assert lines[0]["message"].startswith("worker · ")
    assert "worker_started" in {each.get("event") for each in lines}
    said = {each["message"]: each for each in lines if each["logger"] == "shop"}
    for type, id in ids.items():
        fields = {name: said[f"in a {type}"][name] for name in ("job_id", "type", "attempt")}
        assert fields == {"job_id": id, "type": type, "attempt": 1}
    crashes = [each for each in lines if each["message"] == "division by zero"]
    assert len(crashes) == len(ids)
    assert len([each for each in lines if each["logger"] == "py.warnings"]) == 2


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["worker", "broken:app"], "HF092"),
        (["worker", "shop:app", "--slots", "5", "--drain", "--types", "none"], "HF"),
    ],
)
def test_an_error_is_a_json_line_too(
    folder: Path, scene: Scene, words: list[str], code: str
) -> None:
    with Command(*words, "--log-format", "json") as command:
        _, said = command.process.communicate(timeout=PATIENCE_S)
    *_, last = [json.loads(each) for each in said.splitlines()]
    assert last["level"] == "error"
    assert last["code"].startswith(code)
    assert last["help"]


@pytest.mark.parametrize("command", ["worker", "dev"])
def test_a_terminal_gets_words_and_colours(
    folder: Path, scene: Scene, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    id = scene.start("hello", input="{}")
    words = ("--drain",) if command == "worker" else ("--no-dashboard",)
    with Terminal(folder, command, "shop:app", *words, module="holdfast") as terminal:
        terminal.wait_for(rf"warning: job retried hello job_id={short_id(id)} ")
        terminal.wait_for(r"\n(?:worker │ )? {9}KeyError: 'name'")
        terminal.wait_for(r"\n(?:worker │ )? {11}File ")
    assert "\x1b[33mwarning: job retried" in terminal.painted
    assert id not in terminal.painted


LOOP = """
import asyncio
from holdfast import Holdfast, Job

app = Holdfast()

@app.job("loop")
async def tell(job: Job[None]) -> None:
    print(type(asyncio.get_running_loop()).__module__.split(".")[0], flush=True)
"""


@pytest.mark.parametrize(
    ("wanted", "is_installed", "used"),
    [("true", True, "uvloop"), ("false", True, "asyncio"), ("true", False, "asyncio")],
)
def test_a_worker_runs_on_uvloop_if_that_is_installed_and_not_switched_off(
    folder: Path, scene: Scene, wanted: str, is_installed: bool, used: str
) -> None:
    (folder / "shop.py").write_text(LOOP)
    if not is_installed:
        (folder / "uvloop.py").write_text("raise ImportError\n")
    scene.start("loop", input="null")
    with Command("worker", "shop:app", "--drain", env={"HOLDFAST_UVLOOP": wanted}) as command:
        out, err = command.process.communicate(timeout=PATIENCE_S)
    assert (command.process.returncode, out) == (0, f"{used}\n"), err
    assert ("· 1 job type · uvloop · " in err) == (used == "uvloop")


@pytest.mark.parametrize("uvloop", ["true", "false"])
def test_one_signal_lets_handlers_end_a_second_stops_them_now(
    folder: Path, scene: Scene, uvloop: str
) -> None:
    ids = [scene.start("slow") for _ in range(3)]
    loop = {"HOLDFAST_UVLOOP": uvloop}
    with Command("worker", "shop:app", "--slots", "1", env=loop) as command:
        assert command.line() == "slow begins\n"
        command.process.send_signal(signal.SIGTERM)
        command.wait_for_word("worker_stopping")
        command.process.send_signal(signal.SIGTERM)
        command.process.communicate(timeout=PATIENCE_S)
        assert command.process.returncode == 0
    assert {scene.state(each) for each in ids} <= {"pending", "completed"}


def test_what_a_busy_worker_claimed_ahead_goes_to_an_idle_one(folder: Path, scene: Scene) -> None:
    for _ in range(300):
        scene.start("hello", input='{"name": "ana"}')
    ids = [scene.start("held", input="null") for _ in range(8)]
    with Command("worker", "shop:app", "--slots", "2") as busy:
        assert [busy.line() for _ in range(2)] == ["held begins\n"] * 2
        with Command("worker", "shop:app", "--slots", "6") as idle:
            assert [idle.line() for _ in range(6)] == ["held begins\n"] * 6
            (folder / "go").touch()
            assert [each.ended_by(signal.SIGTERM) for each in (busy, idle)] == [0, 0]
    assert {scene.state(each) for each in ids} == {"completed"}


@pytest.mark.parametrize("words", ["worker shop:app --drain", "tick shop:app"])
def test_a_drain_and_a_tick_do_not_wait_for_a_database_that_is_not_there(
    folder: Path, words: str
) -> None:
    url = {"HOLDFAST_URL": "postgresql://nobody@127.0.0.1:1/nothing"}
    with Command(*words.split(), env=url) as command:
        assert command.process.wait(PATIENCE_S) == Exit.DATABASE
        error = command.error()
    assert "error[HF043]" in error
    assert "waiting for it" not in error


def test_a_terminal_that_is_closed_lets_handlers_end(folder: Path, scene: Scene) -> None:
    id = scene.start("hello", input='{"name": "ana"}')
    with Command("worker", "shop:app", "--log-jobs") as command:
        command.wait_for_word("job_completed")
        assert command.ended_by(signal.SIGHUP) == 0
        assert "worker_stopped" in command.error()
    assert scene.state(id) == "completed"


def test_a_signal_before_anything_has_begun_ends_the_command(folder: Path, scene: Scene) -> None:
    slow = "import sys, time\nprint('importing', flush=True)\ntime.sleep(60)\n"
    (folder / "slow.py").write_text(slow)
    with Command("worker", "slow:app") as command:
        assert command.line() == "importing\n"
        assert command.ended_by(signal.SIGTERM) == 0
        assert "Traceback" not in command.error()


@pytest.mark.parametrize(
    ("spec", "complaint", "help"),
    [
        ("shp:app", "module shp not found", "did you mean shop?"),
        ("shop:ap", "shop has no ap", "did you mean shop:app?"),
        (
            "shop:number",
            "shop:number is an int, not a Holdfast application",
            "did you mean shop:app?",
        ),
        ("shop.jobs:app", "module shop.jobs not found", "help: "),
        ("no-module", "'no-module' is not a module name", "help: "),
        ("shop.py", "shop.py is a file", "pass its module: shop:app"),
        (":app", "':app' is not a module name", "help: "),
        ("broken", "importing broken failed: RuntimeError: no such luck", "fix the module first"),
    ],
)
def test_what_cannot_be_loaded_is_named(
    folder: Path, run: Run, spec: str, complaint: str, help: str
) -> None:
    result = run("worker", spec)
    assert result.exit_code == Exit.USAGE
    assert f"error[HF092]: {complaint}" in result.stderr
    assert help in result.stderr


@pytest.mark.parametrize("spec", ["broken", "lazy"])
def test_a_broken_module_is_shown_with_its_place(folder: Path, run: Run, spec: str) -> None:
    (folder / "lazy.py").write_text(
        "from holdfast_celery import Celery\napp = Celery('lazy', include=['broken'])\n"
    )
    result = run("worker", spec)
    assert f"error[HF092]: importing {spec} failed: RuntimeError: no such luck" in result.stderr
    assert f"{folder / 'broken.py'}:2: raise RuntimeError" in result.stderr
    assert "<frozen importlib" not in result.stderr
    assert "session.py" not in result.stderr


def test_a_module_that_is_no_python_is_shown_with_its_place(folder: Path, run: Run) -> None:
    (folder / "torn.py").write_text("app = = 1\n")
    result = run("worker", "torn")
    assert "failed: SyntaxError: invalid syntax (torn.py, line 1)" in result.stderr
    assert "importlib" not in result.stderr


def test_an_unknown_type_is_answered_with_the_nearest(folder: Path, run: Run) -> None:
    result = run("worker", "shop", "--types", "helo")
    assert result.exit_code == Exit.NOT_FOUND
    assert "did you mean hello?" in result.stderr
    nothing = run("worker", "shop", "--types", "pdf.*")
    assert "no handler for 'pdf.*'" in nothing.stderr
    assert "handled types: ask, held, hello, order.placed/mail, rare, slow" in nothing.stderr


@pytest.mark.parametrize("types", ["", " , "])
def test_a_list_of_no_types_is_refused(folder: Path, run: Run, types: str) -> None:
    result = run("worker", "shop", "--types", types)
    assert result.exit_code == Exit.USAGE
    assert "error[HF091]: --types names no job type" in result.stderr


def test_an_application_of_nothing_but_cycles_is_run(folder: Path, scene: Scene) -> None:
    with Command("worker", "shop:clockwork") as command:
        command.wait_for_word("worker · 10 slots · 0 job types · 1 cycle · ")
        assert command.line() == "swept\n"
        command.process.send_signal(signal.SIGTERM)
        _, said = command.process.communicate(timeout=PATIENCE_S)
    assert command.process.returncode == 0, said


def test_the_number_of_processes_is_a_setting(folder: Path, scene: Scene) -> None:
    id = scene.start("hello", input='{"name":"ana"}')
    words = ("worker", "shop:app", "--drain")
    with Command(*words, env={"HOLDFAST_PROCESSES": "2"}) as command:
        _, said = command.process.communicate(timeout=PATIENCE_S)
    assert command.process.returncode == 0, said
    assert len(re.findall(r"worker process started: pid \d+, 2 in total", said)) == 2
    assert scene.state(id) == "completed"


def test_each_of_several_processes_answers_probes_on_a_port_of_its_own(
    folder: Path, scene: Scene
) -> None:
    first = _free_ports(2)
    words = ("worker", "shop:app", "--processes", "2", "--probe-port", str(first))
    with Command(*words) as command:
        assert command.process.stderr is not None
        started = (each for each in command.process.stderr if "probes on " in each)
        said = {next(started).split()[2], next(started).split()[2]}
        assert said == {f"http://127.0.0.1:{first + each}/livez," for each in range(2)}
        workers = set()
        for each in range(2):
            address = f"http://127.0.0.1:{first + each}"
            assert httpx.get(f"{address}/livez").json() == {"status": "alive"}
            workers.update(wait_until(partial(_workers_at, address)))
        assert len(workers) == 2
        assert command.interrupt() == Exit.OK


def _workers_at(address: str) -> list[str]:
    text = httpx.get(f"{address}/metrics").text
    return re.findall(r'worker_running\{worker="(.+?)"\} 1', text)


def _free_ports(count: int) -> int:
    """Return the first of some ports in a row that are free."""
    while True:
        with ExitStack() as taken:
            first = taken.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1]
            try:
                for number in range(1, count):
                    taken.enter_context(socket.create_server(("127.0.0.1", first + number)))
            except (OSError, OverflowError):
                continue
            return int(first)


def test_ports_beyond_the_last_are_refused(folder: Path, run: Run, scene: Scene) -> None:
    result = run("worker", "shop:app", "--processes", "2", "--probe-port", "65535")
    assert result.exit_code == Exit.USAGE
    assert "2 processes need the ports from 65535 to 65536" in result.stderr
    assert "choose a --probe-port up to 65534" in result.stderr


def test_a_taken_probe_port_is_said_in_words(folder: Path, scene: Scene) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        done = drained("--probe-port", port)
    assert done.returncode == Exit.USAGE
    assert f"error[HF010]: port {port} on 127.0.0.1 is already in use or not allowed" in done.stderr


def test_an_application_without_handlers_has_nothing_to_run(folder: Path, run: Run) -> None:
    result = run("worker", "shop:nothing")
    assert result.exit_code == Exit.USAGE
    assert "has no handlers" in result.stderr


def test_a_database_without_the_schema_is_refused(folder: Path, run: Run) -> None:
    result = run("worker", "shop")
    assert result.exit_code == Exit.DATABASE
    assert "holdfast migrate" in result.stderr


def test_an_application_checks_what_it_is_given_to_start(folder: Path, scene: Scene) -> None:
    with Command("jobs", "start", "hello", '["not a dict"]', "--app", "shop") as command:
        _, err = command.process.communicate(timeout=PATIENCE_S)
    assert command.process.returncode == Exit.USAGE
    assert "error[HF022]" in err
