"""The recipes for Docker, systemd and Kubernetes are well-formed and fit the command line and the settings."""

from __future__ import annotations

import configparser
import json
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from holdfast.core.lease import Lease
from holdfast.settings import variables_of
from holdfast.settings.definitions import WorkerSettings
from holdfast.web.probes import PROBES
from tests.cli.processes import Command
from tests.docs.newcomer import run
from tests.docs.snippets import Block, blocks
from tests.docs.test_commands import parse
from tests.docs.walk import free_port
from tests.observe.test_prometheus import NAMES
from tests.support.absent import skip_because_absent
from tests.support.until import PATIENCE_S

PAGE = "docs/run/deploy.md"
DEFAULTS: dict[str, Any] = {each.name: each.default for each in variables_of(WorkerSettings)}
SHUTDOWN_S = DEFAULTS["WORKER_SHUTDOWN_TIMEOUT_MS"] / 1000
TICK_S = DEFAULTS["WORKER_TICK_OVERALL_MAX_MS"] / 1000


SHOP = """
app = Holdfast()

@app.job("mail")
def mail(job) -> None: ...
"""


def printed(command: str) -> list[str]:
    """The lines of the page's commands that begin so."""
    lines = [line for each in blocks(PAGE) for line in each.text.splitlines()]
    return [line for line in lines if line.startswith(command)]


def recipes(language: str) -> dict[str, Block]:
    """The recipes of a language by the file they are."""
    return {str(each.file): each for each in blocks(PAGE) if each.language == language}


UNITS = recipes("ini")
MANIFESTS = [
    document for block in recipes("yaml").values() for document in yaml.safe_load_all(block.text)
]


def unit(block: Block) -> configparser.ConfigParser:
    """Read a unit."""
    found = configparser.ConfigParser(interpolation=None)
    found.read_string(block.text.replace("\\\n", " "))
    return found


def containers(node: Any) -> Iterator[dict[str, Any]]:
    """Every container below a node, of Kubernetes and of Compose."""
    if isinstance(node, dict):
        if isinstance(node.get("command"), list):
            yield node
        for each in node.values():
            yield from containers(each)
    elif isinstance(node, list):
        for each in node:
            yield from containers(each)


def services() -> dict[str, Any]:
    """The services of Compose."""
    found: dict[str, Any] = yaml.safe_load(recipes("yaml")["compose.yaml"].text)["services"]
    return found


def environment() -> dict[str, str]:
    """The variables of the environment file."""
    lines = recipes("properties")["shop.env"].text.splitlines()
    return dict(line.split("=", 1) for line in lines if not line.startswith("#"))


def instructions() -> list[tuple[str, str]]:
    """The last stage of the Dockerfile, as pairs of instruction and arguments."""
    (block,) = recipes("dockerfile").values()
    text = block.text.replace("\\\n", " ")
    lines = [line.split(maxsplit=1) for line in text.splitlines() if line and line[0] != "#"]
    start = max(at for at, (name, _) in enumerate(lines) if name == "FROM")
    return [(name, rest.strip()) for name, rest in lines[start:]]


def image_command() -> list[str]:
    """What the image runs."""
    return next(json.loads(rest) for name, rest in instructions() if name == "CMD")


def image_check() -> list[str]:
    """What the image asks its worker for its health with."""
    (check,) = [rest for name, rest in instructions() if name == "HEALTHCHECK"]
    words: list[str] = json.loads(check[check.index("CMD") + 3 :])
    return words


def probes(container: dict[str, Any]) -> list[dict[str, Any]]:
    """The HTTP probes of a container."""
    return [each["httpGet"] for name, each in container.items() if name.endswith("Probe")]


@pytest.mark.parametrize("file", sorted(UNITS))
def test_systemd_accepts_the_unit(file: str, tmp_path: Path) -> None:
    program = shutil.which("systemd-analyze")
    if program is None:
        skip_because_absent("systemd-analyze", "On Debian or Ubuntu: apt-get install systemd")
    for name, block in UNITS.items():
        text = block.text.replace("/srv/shop/.venv/bin", str(Path(sys.executable).parent))
        (tmp_path / name).write_text(text, encoding="utf-8")
    done = subprocess.run(
        [program, "verify", "--man=no", str(tmp_path / file)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    complaints = [line for line in done.stderr.splitlines() if file in line]
    assert not complaints, complaints


@pytest.mark.parametrize("file", [each for each in sorted(UNITS) if each.endswith(".service")])
def test_a_unit_starts_a_command_that_exists(file: str) -> None:
    words = unit(UNITS[file])["Service"]["ExecStart"].split()
    assert words[0].endswith("/bin/holdfast")
    parse(words[1:])


def test_every_container_starts_a_command_that_exists() -> None:
    found = list(containers(MANIFESTS))
    assert len(found) == 6
    for each in found:
        assert each["command"][0] == "holdfast"
        parse(each["command"][1:])


def test_probes_ask_what_the_worker_answers_where_it_listens() -> None:
    asked = [(each, probe) for each in containers(MANIFESTS) for probe in probes(each)]
    assert asked
    for container, probe in asked:
        options = parse(container["command"][1:]).params
        assert probe["path"] in {route.path for route in PROBES if route.action is None}
        assert probe["port"] == options["probe_port"]
        assert {"name": "probes", "containerPort": probe["port"]} in container["ports"]
        assert options["probe_host"] == "0.0.0.0", "the kubelet comes from outside the pod"


def patience() -> list[float]:
    """How long each recipe waits for a worker to stop, in seconds."""
    kinds = {each.get("kind", "Compose"): each for each in MANIFESTS}
    return [
        float(unit(UNITS["shop-worker.service"])["Service"]["TimeoutStopSec"]),
        float(kinds["Deployment"]["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]),
        float(services()["worker"]["stop_grace_period"].removesuffix("s")),
    ]


def test_every_recipe_waits_longer_than_a_worker_needs_to_stop() -> None:
    assert min(patience()) > SHUTDOWN_S


def test_a_tick_is_given_longer_than_its_own_limit() -> None:
    (cron,) = [each for each in MANIFESTS if each.get("kind") == "CronJob"]
    assert cron["spec"]["jobTemplate"]["spec"]["activeDeadlineSeconds"] > TICK_S
    assert float(unit(UNITS["shop-tick.service"])["Service"]["TimeoutStartSec"]) > TICK_S


def test_a_unit_that_systemd_watches_may_wait_for_its_database_and_block_longer_than_a_beat() -> (
    None
):
    service = unit(UNITS["shop-worker.service"])["Service"]
    assert (service["Type"], service["TimeoutStartSec"]) == ("notify", "infinity")
    assert float(service["WatchdogSec"]) > Lease().heartbeat_ms / 1000


def test_the_image_runs_as_an_ordinary_user_and_has_nothing_to_build_with() -> None:
    names = [name for name, _ in instructions()]
    (user,) = [rest for name, rest in instructions() if name == "USER"]
    assert int(user) > 0  # a number, because that is all that Kubernetes can check
    assert names.index("USER") < names.index("CMD")
    assert not re.search(r"\b(pip|apt|gcc|wheels)\b", " ".join(rest for _, rest in instructions()))


def test_the_image_starts_a_command_that_exists_and_asks_it_where_it_listens() -> None:
    command = image_command()
    assert command[0] == "holdfast"
    options = parse(command[1:]).params
    assert f":{options['probe_port']}/livez" in image_check()[-1]


def test_compose_finds_everything_that_it_names_on_the_page() -> None:
    found, given = services(), environment()
    assert {file for each in found.values() for file in each["env_file"]} == {"shop.env"}
    assert {name for each in found.values() for name in each.get("depends_on", {})} <= set(found)
    assert all(each.startswith("127.0.0.1:") for each in found["dashboard"]["ports"])
    url = urlsplit(given["HOLDFAST_URL"])
    assert url.hostname in found
    assert (url.username, url.password, url.path) == (
        given["POSTGRES_USER"],
        given["POSTGRES_PASSWORD"],
        f"/{given['POSTGRES_DB']}",
    )
    port = parse(found["dashboard"]["command"][1:]).params["port"]
    assert f":{port}/livez" in found["dashboard"]["healthcheck"]["test"][-1]


def test_what_compose_starts_works_in_its_order(tmp_path: Path, postgres_url: str) -> None:
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "jobs.py").write_text("from holdfast import Holdfast\n\n" + SHOP)
    given, port = {"HOLDFAST_URL": postgres_url}, str(free_port())
    words = [port if each == "9000" else each for each in image_command()]
    run(tmp_path, *services()["migrate"]["command"], **given)
    (token,) = [line for line in printed("docker compose run") if "token create" in line]
    run(tmp_path, *shlex.split(token)[shlex.split(token).index("holdfast") :], **given)
    check = [sys.executable, "-c", image_check()[-1].replace("9000", port)]
    with Command(*words[1:], cwd=tmp_path, env=given | {"PYTHONPATH": str(tmp_path)}) as worker:
        worker.wait_for_word("worker_started")
        assert subprocess.run(check, timeout=PATIENCE_S, check=False).returncode == 0
        assert worker.ended_by(signal.SIGTERM) == 0
    assert subprocess.run(check, capture_output=True, timeout=PATIENCE_S, check=False).returncode


def test_scaling_asks_for_a_metric_that_exists_and_keeps_a_worker() -> None:
    kinds = {each["kind"]: each for each in MANIFESTS if "kind" in each}
    scaler, keda = kinds["HorizontalPodAutoscaler"]["spec"], kinds["ScaledObject"]["spec"]
    (trigger,), (metric,) = keda["triggers"], scaler["metrics"]
    name = metric["external"]["metric"]["name"]
    assert name in NAMES
    assert name in trigger["metadata"]["query"]
    for spec in (scaler, keda):
        assert spec["scaleTargetRef"]["name"] == kinds["Deployment"]["metadata"]["name"]
    assert min(scaler["minReplicas"], keda["minReplicaCount"]) >= 1
