"""A command as a process of its own, run to its end."""

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path


def run_command(
    words: Sequence[str], cwd: Path, env: Mapping[str, str], timeout: float
) -> subprocess.CompletedProcess[str]:
    """Run a command, whatever comes of it; its errors are among what it said."""
    return subprocess.run(
        words,
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout,
        check=False,
    )
