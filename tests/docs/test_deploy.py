"""The recipes for systemd, Kubernetes and Compose are well-formed and fit the command line and the settings."""

from __future__ import annotations

import configparser
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from holdfast.settings import variables_of
from holdfast.settings.definitions import WorkerSettings
from holdfast.web.probes import PROBES
from tests.docs.snippets import Block, blocks
from tests.docs.test_commands import parse
from tests.support.absent import skip_because_absent
from tests.support.until import PATIENCE_S

PAGE = "docs/run/deploy.md"
DEFAULTS: dict[str, Any] = {each.name: each.default for each in variables_of(WorkerSettings)}
SHUTDOWN_S = DEFAULTS["WORKER_SHUTDOWN_TIMEOUT_MS"] / 1000
TICK_S = DEFAULTS["WORKER_TICK_OVERALL_MAX_MS"] / 1000


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
    assert len(found) == 7
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
        float(kinds["Compose"]["services"]["worker"]["stop_grace_period"].removesuffix("s")),
    ]


def test_every_recipe_waits_longer_than_a_worker_needs_to_stop() -> None:
    assert min(patience()) > SHUTDOWN_S


def test_a_tick_is_given_longer_than_its_own_limit() -> None:
    (cron,) = [each for each in MANIFESTS if each.get("kind") == "CronJob"]
    assert cron["spec"]["jobTemplate"]["spec"]["activeDeadlineSeconds"] > TICK_S
    assert float(unit(UNITS["shop-tick.service"])["Service"]["TimeoutStartSec"]) > TICK_S
