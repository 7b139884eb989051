"""A local directory: the contract, crashes, symbolic links, damage, many writers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from holdfast_files import Files, directory, open_files
from holdfast_files.conformance import KEY, PDF, FilesContract, sha256
from holdfast_files.errors import (
    FilesUnreachable,
    InvalidObjectKey,
    ObjectCorrupted,
    ObjectExists,
    ObjectNotFound,
)
from holdfast_files.folders import NEW_S, names_in
from tests.files import crashing
from tests.support.warm_python import LIBRARIES


class TestDirectory(FilesContract):
    """The contract, in a directory."""

    @pytest.fixture
    def files(self, directory_files: Files) -> Files:
        return directory_files


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Where the files are."""
    return tmp_path / "files"


@pytest.fixture
def files(directory_files: Files) -> Files:
    """The files in it."""
    return directory_files


def temporaries(root: Path) -> list[Path]:
    """What is unfinished."""
    return list((root / ".holdfast" / "tmp").iterdir())


def test_the_content_is_a_file_as_it_is_under_its_key(files: Files, root: Path) -> None:
    files.put(KEY, PDF)
    assert (root / KEY).read_bytes() == PDF
    assert temporaries(root) == []


def test_opening_and_looking_creates_nothing(files: Files, root: Path) -> None:
    assert not files.exists(KEY)
    assert list(files.list()) == []
    files.delete(KEY)
    assert not root.exists()


def test_a_deletion_leaves_no_empty_folders_and_no_checksums(files: Files, root: Path) -> None:
    files.put(KEY, PDF)
    files.delete(KEY)
    assert not (root / "invoices").exists()
    assert not (root / ".holdfast" / "sums").exists()


def test_a_crash_at_any_step_leaves_the_old_content_or_the_new_one(tmp_path: Path) -> None:
    died, old, new = 0, b"old", b"the new content"
    seen = set()
    while True:
        root = tmp_path / str(died)
        files = open_files(root)
        files.put(KEY, old)
        arguments = [str(root), KEY, new.decode(), str(died + 1)]
        child = LIBRARIES.run([crashing.__file__, *arguments], tmp_path, os.environ)
        content = files.get(KEY)
        assert files.verify(KEY) == files.head(KEY)
        assert files.head(KEY).sha256 == sha256(content)
        assert [each.key for each in files.list()] == [KEY]
        seen.add(content)
        # Whatever was left behind hinders nobody.
        files.put(KEY, old)
        assert files.get(KEY) == old
        files.delete(KEY)
        assert list(files.list()) == []
        if child.returncode == 0:
            break
        assert child.returncode == -signal.SIGKILL
        died += 1
    assert died > 10
    assert seen == {old, new}


def test_a_writer_killed_in_the_middle_of_its_content_leaves_nothing_visible(
    files: Files, root: Path
) -> None:
    script = (
        "import sys, time; from pathlib import Path; from holdfast_files import open_files\n"
        "path = Path(sys.argv[2])\n"
        "path.write_bytes(b'x' * 30_000_000)\n"
        "import holdfast_files.content as content\n"
        "def blocks(self):\n"
        "    yield b'x' * 5_000_000\n"
        "    print('half', flush=True); time.sleep(600)\n"
        "content.Content.blocks = blocks\n"
        "open_files(sys.argv[1]).put('half.bin', path)\n"
    )
    command = [sys.executable, "-c", script, str(root), str(root.parent / "source")]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"half\n"
        child.kill()
    assert not files.exists("half.bin")
    assert list(files.list()) == []
    (left,) = temporaries(root)
    files.put(KEY, PDF)
    assert left.exists()
    # A later process removes it: nobody has it locked.
    minutes_ago = time.time() - NEW_S - 60
    os.utime(left, (minutes_ago, minutes_ago))
    open_files(root).put(KEY, PDF)
    assert temporaries(root) == []


def test_a_source_that_fails_stores_nothing(files: Files, root: Path) -> None:
    def broken() -> Iterator[bytes]:
        yield b"x" * 20_000_000
        raise RuntimeError("the source is gone")

    files.put(KEY, PDF)
    with pytest.raises(RuntimeError, match="the source is gone"):
        files.put(KEY, broken())
    assert files.get(KEY) == PDF
    assert temporaries(root) == []


def test_readers_see_whole_contents_while_writers_replace_them(files: Files) -> None:
    contents = [bytes([letter]) * 2_000_000 for letter in b"ab"]
    files.put(KEY, contents[0])
    done = threading.Event()

    def read() -> int:
        count = 0
        while not done.is_set():
            assert files.get(KEY) in contents
            count += 1
        return count

    with ThreadPoolExecutor(3) as pool:
        readers = [pool.submit(read) for _ in range(2)]
        for number in range(30):
            files.put(KEY, contents[number % 2])
        done.set()
        assert all(reader.result() for reader in readers)


def test_a_checksum_that_a_writer_removes_while_it_is_read_hides_no_other(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = files.put(KEY, PDF, "application/x-own")

    def with_removed(folder: int) -> list[str]:
        return ["0" * 64, *names_in(folder)]

    monkeypatch.setattr(directory, "names_in", with_removed)
    assert files.head(KEY) == stored


def test_writers_and_deleters_of_neighbouring_keys_do_not_disturb_each_other(files: Files) -> None:
    def work(number: int) -> None:
        key = f"shared/folder/{number}"
        for _ in range(25):
            assert files.put(key, PDF).sha256 == files.head(key).sha256
            files.delete(key)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert list(files.list()) == []


def test_of_different_contents_stored_at_once_exactly_one_is_accepted(files: Files) -> None:
    def store(number: int) -> bool:
        try:
            files.put_once(KEY, bytes([number]) * 1000)
        except ObjectExists:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(store, range(8))) == 1


@pytest.mark.parametrize(
    "damage", [b"%PDF-1.7 forty-tw0", b"%PDF", b""], ids=["byte", "cut", "empty"]
)
def test_content_that_was_damaged_is_found(files: Files, root: Path, damage: bytes) -> None:
    files.put(KEY, PDF)
    (root / KEY).write_bytes(damage)
    for read in (files.get, files.verify):
        with pytest.raises(ObjectCorrupted, match=KEY):
            read(KEY)
    with pytest.raises(ObjectCorrupted):
        files.put_once(KEY, PDF)
    files.put(KEY, PDF)
    assert files.get(KEY) == PDF


def test_a_copy_of_the_directory_keeps_its_checksums(files: Files, root: Path) -> None:
    record = files.put(KEY, PDF, "text/plain")
    copy = root.parent / "restored"
    subprocess.run(["cp", "-r", root, copy], check=True)
    assert open_files(copy).verify(KEY) == record


def test_a_file_from_elsewhere_is_read_and_compared_without_a_checksum(
    files: Files, root: Path
) -> None:
    (root / "invoices" / "2026").mkdir(parents=True)
    (root / KEY).write_bytes(PDF)
    assert files.get(KEY) == PDF
    assert (files.head(KEY).sha256, files.head(KEY).content_type) == ("", "application/pdf")
    assert files.put_once(KEY, PDF).sha256 == sha256(PDF)
    with pytest.raises(ObjectExists):
        files.put_once(KEY, b"another")


def test_a_folder_that_is_a_symbolic_link_is_not_entered(
    files: Files, root: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(b"theirs")
    root.mkdir()
    (root / "link").symlink_to(outside)
    for call in (files.get, files.head, files.delete, files.open):
        with pytest.raises(InvalidObjectKey, match="symbolic link"):
            call("link/secret")
    for store in (files.put, files.put_once):
        with pytest.raises(InvalidObjectKey, match="symbolic link"):
            store("link/new", PDF)
    assert list(files.list()) == []
    assert [each.name for each in outside.iterdir()] == ["secret"]


def test_a_file_that_is_a_symbolic_link_is_replaced_and_never_followed(
    files: Files, root: Path, tmp_path: Path
) -> None:
    target = tmp_path / "target"
    target.write_bytes(b"theirs")
    root.mkdir()
    (root / "link").symlink_to(target)
    with pytest.raises(InvalidObjectKey, match="symbolic link"):
        files.get("link")
    assert list(files.list()) == []
    files.put("link", PDF)
    assert files.get("link") == PDF
    assert target.read_bytes() == b"theirs"


def test_what_is_no_regular_file_is_no_object(files: Files, root: Path) -> None:
    root.mkdir()
    os.mkfifo(root / "pipe")
    with pytest.raises(ObjectNotFound):
        files.get("pipe")
    assert list(files.list()) == []


def test_a_key_cannot_be_an_object_and_a_folder(files: Files) -> None:
    files.put("a/b", PDF)
    for store in (files.put, files.put_once):
        with pytest.raises(InvalidObjectKey, match="is a folder of other objects"):
            store("a", PDF)
        with pytest.raises(InvalidObjectKey, match="is an object, not a folder"):
            store("a/b/c", PDF)
    with pytest.raises(ObjectNotFound):
        files.get("a")
    files.delete("a")
    assert files.get("a/b") == PDF


def test_what_the_system_refuses_is_an_error_with_a_fix(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"not a directory")
    with pytest.raises(FilesUnreachable, match="check the disk") as refused:
        open_files(tmp_path / "file").put(KEY, PDF)
    assert str(tmp_path / "file") in str(refused.value)
