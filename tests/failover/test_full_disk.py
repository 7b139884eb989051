"""Campaigns on a disk that fills up, where this process may mount a small one."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.test_chaos_command import chaos, result_of
from tests.support.absent import skip_because_absent
from tests.support.until import TEST_TIMEOUT_S

WORDS = ("--only", "full_disk,kill", "--seconds", "10", "--every", "1.5", "--rate", "20")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=400m", "none", str(folder)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        skip_because_absent("a file system to fill", "Run the tests as root on Linux")
    for each in (folder, *folder.parents):
        # The server runs as another user than root.
        if each.stat().st_uid == 0 and each != Path("/"):
            each.chmod(each.stat().st_mode | 0o011)
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.mark.timeout(2 * TEST_TIMEOUT_S)
@pytest.mark.parametrize("words", [(), ("--postgres",)], ids=["sqlite", "postgres"])
def test_a_full_disk_loses_nothing(
    tmp_path: Path, small_disk: Path, words: tuple[str, ...]
) -> None:
    kept = tmp_path / "kept"
    done = chaos(
        tmp_path, *words, *WORDS, "--disk", str(small_disk), "--keep", str(kept), "-o", "json"
    )
    found = result_of(done)
    assert (found["verdict"], found["broken"], found["lost"]) == ("green", [], 0)
    assert found["faults"]["full_disk"] >= 2
    # Its record takes the place of no other's.
    assert found["store"].endswith(", small disk") == bool(words)
    logs = "".join(each.read_text(errors="replace") for each in kept.glob("*.log"))
    assert "disk is full" in logs or "No space left on device" in logs
    assert not list(small_disk.iterdir())


def test_a_large_disk_is_not_filled(tmp_path: Path) -> None:
    if shutil.disk_usage(tmp_path).free <= 4 << 30:
        skip_because_absent("a disk with more than 4 GiB free", "Set TMPDIR to a larger one")
    done = chaos(tmp_path, "--disk", str(tmp_path), expected=2)
    assert "and filling it would fill the disk of others" in done.stderr
    assert not list(tmp_path.iterdir())


def test_a_standby_and_a_small_disk_exclude_each_other(tmp_path: Path) -> None:
    done = chaos(tmp_path, "--standby", "sync", "--disk", str(tmp_path), expected=2)
    assert "--disk is for a database without standby" in done.stderr
