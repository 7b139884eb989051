"""The API is served by a process of its own, which says where, answers, and stops when told."""

import json
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from holdfast.cli.exit_codes import Exit
from tests.cli.conftest import Run
from tests.cli.processes import Command
from tests.cli.scene import Scene
from tests.support.until import PATIENCE_S

APP = """
from holdfast import Holdfast, Job

app = Holdfast("{url}")

@app.job("echo")
async def echo(job: Job[object]) -> object:
    return job.input
"""
STATS = "api/settings/events/outbox/stats"
RUN_ONCE = "api/settings/events/outbox/run-once"


def test_an_address_that_others_reach_is_refused_until_a_token_exists(
    run: Run, scene: Scene
) -> None:
    result = run("api", "serve", "--host", "0.0.0.0", "--port", "0")
    assert result.exit_code == Exit.USAGE
    assert "HF015" in result.stderr
    assert "holdfast token create" in result.stderr


@pytest.mark.parametrize("path", ["ops", "/ops?a", "//evil.example", "/ops\r\nX: y"])
def test_what_cannot_be_a_path_is_refused(run: Run, scene: Scene, path: str) -> None:
    result = run("api", "serve", "--port", "0", "--root-path", path)
    assert result.exit_code == Exit.USAGE
    assert "is not a path" in result.stderr


@pytest.mark.parametrize("option", ["--root-path", "--below"])
def test_links_start_with_the_path_that_a_proxy_strips(scene: Scene, url: str, option: str) -> None:
    with Command("api", "serve", "--url", url, "--port", "0", option, "/ops/") as command:
        assert command.process.stderr is not None
        said = next(line for line in command.process.stderr if "dashboard on" in line)
        address = re.findall(r"(http://\S+)/", said)[0]
        page = httpx.get(f"{address}/jobs").text
        links = re.findall(r'(?:href|src|action|data-stream)="(/[^"]*)"', page)
        assert len(links) > 10
        assert all(each.startswith("/ops/") for each in links)
        assert httpx.get(f"{address}/jobs/").headers["location"] == "/ops/jobs"
        style = next(each for each in links if "base.css" in each)
        assert httpx.get(f"{address}{style.removeprefix('/ops')}").status_code == 200


def test_the_servers_lines_are_json_without_colours(scene: Scene, url: str) -> None:
    words = ("api", "serve", "--url", url, "--port", "0", "--log-format", "json")
    with Command(*words, env={"FORCE_COLOR": "1"}) as command:
        command.wait_for_word("serving the API and the dashboard on")
        assert command.interrupt() == Exit.OK
        rest = command.error()
    with Command(*words, env={"FORCE_COLOR": "1"}) as command:
        said = command.process.stderr
        assert said is not None
        first = json.loads(next(said))
    lines = [first, *map(json.loads, rest.splitlines())]
    assert {"uvicorn.error"} <= {each["logger"] for each in lines}
    assert "\\u001b" not in json.dumps(lines)


def test_a_taken_port_is_said_in_words(run: Run, scene: Scene) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        result = run("api", "serve", "--port", port)
    assert result.exit_code == Exit.USAGE
    assert (
        f"error[HF010]: port {port} on 127.0.0.1 is already in use or not allowed" in result.stderr
    )
    assert "help: " in result.stderr


def test_the_seeds_requests_work_against_a_served_application(
    run: Run, scene: Scene, url: str, tmp_path: Path
) -> None:
    (tmp_path / "shop.py").write_text(APP.format(url=url))
    made = run("token", "create", "--role", "developer", "--name", "ana", "-o", "id")
    bearer = {"Authorization": f"Bearer {made.stdout.strip()}"}
    id = scene.start("echo")
    command = [sys.executable, "-m", "holdfast", "api", "serve", "shop:app", "--port", "0"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            address = next(
                found[0]
                for line in process.stderr
                if (found := re.findall(r"dashboard on (http://\S+/)", line))
            )
            assert httpx.get(f"{address}livez").json() == {"status": "alive"}
            assert httpx.get(f"{address}{STATS}").status_code == 401
            stats = httpx.get(f"{address}{STATS}", headers=bearer).json()
            assert stats["queue"]["due_now"] == 1
            answer = httpx.post(f"{address}{RUN_ONCE}", headers=bearer, timeout=PATIENCE_S).json()
            assert answer["summary"]["totalProcessed"] == 1
            assert scene.state(id) == "completed"
            with httpx.stream("GET", f"{address}api/v1/live", headers=bearer) as stream:
                lines = stream.iter_lines()
                assert next(lines) == "retry: 2000"
                process.send_signal(signal.SIGTERM)
                assert list(lines), "an open stream ends; it does not hold the process"
            assert process.wait(PATIENCE_S) == Exit.OK
        finally:
            process.kill()


def test_a_worker_answers_probes_on_a_port_of_its_own(
    scene: Scene, url: str, tmp_path: Path
) -> None:
    (tmp_path / "shop.py").write_text(APP.format(url=url))
    # Before the worker's first look: nobody hints at it, and the next look may be a minute away.
    scene.start("echo")
    with Command("worker", "shop:app", "--probe-port", "0", cwd=tmp_path) as command:
        said = command.process.stderr
        assert said is not None
        address = next(
            found[0]
            for line in said
            if (found := re.findall(r"probes on (http://\S+/)livez", line))
        )
        assert httpx.get(f"{address}livez").json() == {"status": "alive"}
        done = 'holdfast_job_attempts_total{outcome="completed",type="echo"} 1.0'
        deadline = time.monotonic() + PATIENCE_S
        with httpx.Client(base_url=address) as client:
            # The worker counts an attempt after its commit, so there is nothing else to wait for.
            while done not in client.get("metrics").text:
                assert time.monotonic() < deadline, "the attempt was not counted"
        assert httpx.get(f"{address}api/v1/jobs").status_code == 404
        assert command.interrupt() == Exit.OK
