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
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from packaging.requirements import Requirement

from holdfast.core.lease import Lease
from holdfast.settings import variables_of
from holdfast.settings.definitions import WorkerSettings
from holdfast.web.probes import PROBES
from tests.cli.processes import Command
from tests.docs.newcomer import run
from tests.docs.snippets import ROOT, Block, blocks
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


def stages() -> list[list[tuple[str, str]]]:
    """The stages of the Dockerfile, each as pairs of instruction and arguments."""
    (block,) = recipes("dockerfile").values()
    text = block.text.replace("\\\n", " ")
    found: list[list[tuple[str, str]]] = []
    for line in text.splitlines():
        if not line or line[0] == "#":
            continue
        name, rest = line.split(maxsplit=1)
        if name == "FROM":
            found.append([])
        found[-1].append((name, rest.strip()))
    return found


def instructions() -> list[tuple[str, str]]:
    """The last stage of the Dockerfile."""
    return stages()[-1]


def arguments(stage: list[tuple[str, str]], instruction: str) -> list[list[str]]:
    """The words of each instruction of a kind."""
    return [shlex.split(rest) for name, rest in stage if name == instruction]


def compose_commands() -> list[list[str]]:
    """The words of each `docker compose` on the page, from its subcommand on."""
    return [shlex.split(line, comments=True)[2:] for line in printed("docker compose ")]


def built_packages() -> tuple[str, dict[str, dict[str, Any]]]:
    """The folder for wheels, and the `pyproject.toml` of each package that the page builds into it, by name."""
    (line,) = printed("pip wheel")
    words = shlex.split(line, comments=True)
    _, folder, *packages = words[words.index("--wheel-dir") :]
    files = [ROOT / Path(each).relative_to("../holdfast") / "pyproject.toml" for each in packages]
    projects = [tomllib.loads(each.read_text(encoding="utf-8"))["project"] for each in files]
    return folder, {each["name"]: each for each in projects}


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


def test_the_workers_of_a_template_listen_on_ports_of_their_own() -> None:
    text = (ROOT / PAGE).read_text(encoding="utf-8")
    (port,) = re.findall(r"--probe-port (\w*%i)", text)
    instances = re.findall(r"shop-worker@(\w+)", text)
    assert len({int(port.replace("%i", each)) for each in instances}) == len(instances) >= 2


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


def test_the_image_installs_the_wheel_that_the_page_builds() -> None:
    folder, projects = built_packages()
    (run,) = arguments(stages()[0], "RUN")
    wanted = Requirement(run[-1])
    extras = projects[wanted.name]["optional-dependencies"]
    assert run[run.index("--find-links") + 1] == folder
    needs = [each for extra in wanted.extras for each in extras[extra]]
    needs += [each for project in projects.values() for each in project["dependencies"]]
    ours = {name for each in needs if (name := Requirement(each).name).startswith("holdfast")}
    assert ours | {wanted.name} == projects.keys(), "pip wheel --no-deps builds no others"


def test_the_image_copies_what_the_page_made() -> None:
    folder, _ = built_packages()
    module = image_command()[2].partition(".")[0]
    first, last = stages()
    (workdir,) = arguments(first, "WORKDIR")
    assert [source for source, _ in arguments(first, "COPY")] == [folder]
    (environment, (package, _)) = arguments(last, "COPY")
    assert package == module
    assert environment == ["--from=build", f"{workdir[0]}/.venv", ".venv"]
    # An environment works only where it was made, and with the interpreter that it was made with.
    assert arguments(last, "WORKDIR") == [workdir]
    assert arguments(first, "FROM")[0][0] == arguments(last, "FROM")[0][0]


def test_the_image_has_a_python_that_we_support() -> None:
    _, projects = built_packages()
    version = arguments(instructions(), "FROM")[0][0].removeprefix("python:").partition("-")[0]
    for project in projects.values():
        assert f"Programming Language :: Python :: {version}" in project["classifiers"]


def test_compose_builds_the_image_once_and_pulls_none_of_that_name() -> None:
    ours = {name: each for name, each in services().items() if each["image"] == "shop"}
    # Services that build one tag at once get into each other's way: "image already exists".
    assert [name for name, each in ours.items() if "build" in each] == ["worker"]
    assert {each["pull_policy"] for each in ours.values()} == {"never"}
    orders = [words[0] for words in compose_commands()]
    assert orders.index("build") < orders.index("run") < orders.index("up")


def test_compose_is_asked_for_services_that_it_has() -> None:
    (words,) = [each for each in compose_commands() if each[0] == "run"]
    service, program, *rest = [each for each in words[1:] if each != "--rm"]
    assert service in services()
    assert program == "holdfast"
    parse(rest)


def test_the_database_keeps_its_files_on_the_volume() -> None:
    database = services()["db"]
    # From version 18 on the image keeps them in a folder per version below this one.
    assert int(database["image"].removeprefix("postgres:")) >= 18
    assert database["volumes"] == ["data:/var/lib/postgresql"]


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
    assert "cooldownPeriod" not in keda, "KEDA heeds it only when it scales to zero"


def test_scaling_does_not_depend_on_how_many_workers_report_the_wait() -> None:
    kinds = {each.get("kind"): each for each in MANIFESTS}
    (metric,) = kinds["HorizontalPodAutoscaler"]["spec"]["metrics"]
    (trigger,) = kinds["ScaledObject"]["spec"]["triggers"]
    (rule,) = next(each["externalRules"] for each in MANIFESTS if "externalRules" in each)
    assert rule["seriesQuery"] == metric["external"]["metric"]["name"]
    assert rule["metricsQuery"].startswith("max(")
    assert trigger["metadata"]["query"].startswith("max(")
    # A wait is not shared out among workers, as AverageValue would, which is KEDA's default.
    assert (metric["external"]["target"]["type"], trigger["metricType"]) == ("Value", "Value")
