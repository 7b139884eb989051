"""The image of the page on deployment, built and run by an engine for containers."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from tests.docs.test_deploy import arguments, built_packages, image_check, instructions, recipes
from tests.packaging.environment import PATIENCE_S
from tests.support.absent import skip_because_absent
from tests.support.until import wait_until

pytestmark = [pytest.mark.packaging, pytest.mark.timeout(4 * PATIENCE_S)]

APPLICATION = """
from holdfast import Holdfast, Job

app = Holdfast()

@app.job("greet")
def greet(job: Job[str]) -> str:
    return f"hello {job.input}"
"""
START = """
from shop.jobs import app, greet

with app.transaction() as tx:
    app.start(tx, greet, "ana")
"""
MIGRATED = 'holdfast migrate --app shop.jobs:app && exec "$0" "$@"'
DATABASE = "sqlite:////tmp/holdfast.db"


class Engine:
    """Docker's command line, or Podman's, which is the same one."""

    def __init__(self, program: str) -> None:
        self._program = program

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command."""
        return subprocess.run(
            [self._program, *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=2 * PATIENCE_S,
            check=False,
        )

    def succeed(self, *words: str) -> str:
        """Run a command that must do; return its data."""
        done = self.run(*words)
        assert done.returncode == 0, f"{' '.join(words)}: {done.stdout}{done.stderr}"
        return done.stdout.strip()


@pytest.fixture(scope="module")
def engine() -> Engine:
    """An engine that runs the image that ours begins with."""
    base = arguments(instructions(), "FROM")[0][0]
    engines = [Engine(each) for each in ("docker", "podman") if shutil.which(each)]
    works = [each for each in engines if each.run("run", "--rm", base, "true").returncode == 0]
    if not works:
        skip_because_absent(
            f"an engine for containers that runs {base}",
            "Start Docker, or install Podman, and let it pull that image",
        )
    return works[0]


@pytest.fixture
def image(engine: Engine, wheel: Path, tmp_path: Path) -> Iterator[str]:
    """The image that the page builds, of an application in a folder like the reader's."""
    wheels, packages = built_packages()
    (tmp_path / wheels).mkdir()
    for name in packages:
        (built,) = wheel.parent.glob(f"{name.replace('-', '_')}-*.whl")
        shutil.copy(built, tmp_path / wheels)
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "jobs.py").write_text(APPLICATION)
    (dockerfile,) = recipes("dockerfile").values()
    (tmp_path / "Dockerfile").write_text(dockerfile.text)
    name = f"holdfast-test-{uuid4().hex}"
    engine.succeed("build", "--quiet", "--tag", name, str(tmp_path))
    yield name
    engine.run("rmi", "--force", name)


def test_the_image_runs_jobs_as_an_ordinary_user_and_stops_when_it_is_told_to(
    engine: Engine, image: str
) -> None:
    command = json.loads(engine.succeed("inspect", "--format", "{{json .Config.Cmd}}", image))
    # Nothing outside /tmp is written: the image works on a read-only file system.
    options = ("--read-only", "--tmpfs", "/tmp:mode=1777", "--env", f"HOLDFAST_URL={DATABASE}")
    container = engine.succeed("run", "--detach", *options, image, "sh", "-c", MIGRATED, *command)

    def finds(word: str, *words: str) -> bool:
        done = engine.run("exec", container, *words)
        return done.returncode == 0 and word in done.stdout

    def wait_for(word: str, *words: str) -> None:
        wait_until(lambda: finds(word, *words), lambda: engine.run("logs", container))

    try:
        wait_for("", *image_check())
        engine.succeed("exec", container, "python", "-c", START)
        wait_for("completed", "holdfast", "jobs", "list")
        assert engine.succeed("exec", container, "id", "-u") == "10001"
        engine.succeed("stop", "--time", "45", container)
        state = json.loads(engine.succeed("inspect", "--format", "{{json .State}}", container))
        assert state["ExitCode"] == 0, engine.run("logs", container)
    finally:
        engine.run("rm", "--force", container)
