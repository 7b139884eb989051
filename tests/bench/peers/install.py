"""Puts each peer into an environment of its own, in a cache that outlives the run."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.bench.peers import Peer

ADAPTERS = Path(__file__).parent / "adapters"
CACHE_VARIABLE = "HOLDFAST_BENCH_CACHE"
DONE = ".installed"
PATIENCE_S = 900


class PeerMissing(Exception):
    """A peer cannot be installed here; the text says why."""


def adapter_command(peer: Peer) -> list[str]:
    """Return how its adapter is run, installing what it needs first. Raises: PeerMissing."""
    if peer.is_ours:
        return [sys.executable, str(ADAPTERS / peer.adapter)]
    home = _cache() / f"{peer.name}-{peer.version}-{sys.version_info[0]}.{sys.version_info[1]}"
    if not (home / DONE).exists():
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(parents=True)
        _install_node(peer, home) if peer.is_node else _install_python(peer, home)
        (home / DONE).touch()
    if not peer.is_node:
        return [str(home / "bin" / "python"), str(ADAPTERS / peer.adapter)]
    # Node looks for packages beside the file that imports them.
    for name in ("kit.mjs", peer.adapter):
        shutil.copy(ADAPTERS / name, home / name)
    return [_node("node"), str(home / peer.adapter)]


def _cache() -> Path:
    given = os.environ.get(CACHE_VARIABLE)
    return Path(given) if given else Path.home() / ".cache" / "holdfast-bench"


def _install_python(peer: Peer, home: Path) -> None:
    _run([sys.executable, "-m", "venv", str(home)])
    _run([str(home / "bin" / "python"), "-m", "pip", "install", "-q", *peer.packages])


def _install_node(peer: Peer, home: Path) -> None:
    (home / "package.json").write_text("{}")
    _run(
        [_node("npm"), "install", "--no-audit", "--no-fund", "--prefix", str(home), *peer.packages]
    )


def _node(program: str) -> str:
    found = shutil.which(program)
    if found is None:
        raise PeerMissing(f"{program} is not installed")
    return found


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=PATIENCE_S
        )
    except subprocess.TimeoutExpired as error:
        raise PeerMissing(f"installing took more than {PATIENCE_S} s") from error
    if done.returncode:
        raise PeerMissing(reason(done.stderr))


def reason(said: str) -> str:
    """Return the line of an installer that says what was wrong."""
    if needed := re.findall(r"Requires-Python ([<>=!~0-9.,]+)", said):
        return f"needs Python {needed[-1]}"
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    errors = [line for line in lines if line.lower().startswith(("error:", "npm error"))]
    return (errors or lines or ["the installer failed"])[-1][:200]
