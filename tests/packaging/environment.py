"""Empty virtual environments, and the wheel installed into them."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from tests.support.until import SLOWNESS

ROOT = Path(__file__).parents[2]
PATIENCE_S = 110 * SLOWNESS

_FOREIGN = ("HOLDFAST_", "OUTBOX_", "WORKER_", "PYTHON")


@dataclass(frozen=True, slots=True)
class Environment:
    """A virtual environment, and the folder its commands are run in."""

    programs: Path
    folder: Path

    @property
    def python(self) -> str:
        """The interpreter."""
        return str(self.programs / "python")

    def run(self, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run a command of the environment in its folder."""
        return _run(
            [str(self.programs / words[0]), *words[1:]],
            cwd=self.folder,
            env=self.variables() | variables,
        )

    def succeed(self, *words: str, **variables: str) -> str:
        """Run a command that must do; return its data."""
        done = self.run(*words, **variables)
        assert done.returncode == 0, f"{' '.join(words)}: {done.stderr}"
        return done.stdout

    def variables(self) -> dict[str, str]:
        """Return this process's variables without those that would lead back to the project."""
        own = {name: text for name, text in os.environ.items() if not name.startswith(_FOREIGN)}
        return own | {"PATH": f"{self.programs}{os.pathsep}{os.environ.get('PATH', '')}"}


PACKAGES = sorted(path.name for path in (ROOT / "packages").iterdir() if path.is_dir())


class Distribution(NamedTuple):
    """What is built of a package."""

    wheel: Path
    sdist: Path


def build(folder: Path) -> dict[str, Distribution]:
    """Build wheel and sdist of every package of the work tree into a folder."""
    for name in PACKAGES:
        command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder)]
        _checked(command, cwd=ROOT / "packages" / name)
    return {name: _built(folder, name.replace("-", "_")) for name in PACKAGES}


def _built(folder: Path, stem: str) -> Distribution:
    (wheel,), (sdist,) = folder.glob(f"{stem}-*.whl"), folder.glob(f"{stem}-*.tar.gz")
    return Distribution(wheel, sdist)


def installed(
    wheel: Path,
    extra: str | None,
    folder: Path,
    interpreter: str = sys.executable,
    packages: Sequence[str] = (),
) -> Environment:
    """Make an environment with nothing but the wheel, what it needs, one extra's packages, and those given.

    Our other packages come from the wheel's folder.
    """
    place = folder / "environment"
    _checked([interpreter, "-m", "venv", "--without-pip", str(place)], cwd=folder)
    wanted = str(wheel) if extra is None else f"{wheel}[{extra}]"
    pip = [sys.executable, "-m", "pip", "--python", str(place / "bin" / "python")]
    ours = ["--find-links", str(wheel.parent)]
    _checked([*pip, "install", "--quiet", *ours, wanted, *packages], cwd=folder)
    shop = folder / "shop"
    shop.mkdir()
    return Environment(place / "bin", shop)


def _checked(words: list[str], cwd: Path) -> None:
    done = _run(words, cwd=cwd)
    assert done.returncode == 0, done.stdout + done.stderr


def _run(
    words: list[str], cwd: Path, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words,
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
