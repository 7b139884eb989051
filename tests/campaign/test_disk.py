"""A file system that a campaign may fill; one that is too large is refused."""

from pathlib import Path

import pytest

from holdfast.core.errors import CommandUsage
from holdfast_chaos import disk
from holdfast_chaos.disk import NEW_FOLDER, SmallDisk


@pytest.fixture(autouse=True)
def is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "MAX_BYTES", 0)


def test_nobody_is_told_to_mount_over_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "precious").touch()
    for folder in (Path("/"), tmp_path):
        with pytest.raises(CommandUsage) as refused:
            SmallDisk(folder)
        command = f"mkdir -p {NEW_FOLDER} && mount -t tmpfs -o size=512m none {NEW_FOLDER}"
        assert refused.value.help == f"mount a small one: {command}"


def test_an_empty_folder_is_what_to_mount_over(tmp_path: Path) -> None:
    with pytest.raises(CommandUsage) as refused:
        SmallDisk(tmp_path)
    assert refused.value.help == f"mount a small one: mount -t tmpfs -o size=512m none {tmp_path}"
