"""What is in the wheel and the sdist: everything that is needed, and nothing else."""

import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path, PurePosixPath

from tests.packaging.environment import ROOT

BYTECODE = "__pycache__"
SHIPPED = ("src", "tests", "docs", "apps")
BESIDE = frozenset(
    {
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "LICENSE",
        "Makefile",
        "README.md",
        "requirements-demo.in",
        "requirements-demo.txt",
        "requirements-dev.in",
        "requirements-dev.txt",
        "pyproject.toml",
        "PKG-INFO",
        ".gitignore",
    }
)
JUNK = frozenset({".db", ".log", ".pyc", ".whl", ".gz", ".so", ".orig", ".swp"})


def names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return {each for each in archive.namelist() if ".dist-info/" not in each}


def test_the_wheel_holds_the_package_as_it_is(wheel: Path) -> None:
    source = ROOT / "src"
    ours = {
        path.relative_to(source).as_posix()
        for path in (source / "holdfast").rglob("*")
        if path.is_file() and BYTECODE not in path.parts
    }
    assert names(wheel) == ours


def test_what_is_not_python_comes_along(wheel: Path) -> None:
    found = names(wheel)
    for needed in (
        "holdfast/py.typed",
        "holdfast/admin/templates/layout.html",
        "holdfast/admin/static/dashboard.js",
        "holdfast/demo/static/shop.html",
        "holdfast/cli/starter/app.txt",
        "holdfast/observe/grafana/dashboard.json",
        "holdfast/observe/grafana/alerts.yml",
        "holdfast/storage/postgres/migrations/0001_tables.sql",
        "holdfast/storage/postgres/migrations/0002_leases_in_line.sql",
        "holdfast/storage/sqlite/migrations/0001_tables.sql",
        "holdfast/storage/postgres/sql/job.sql",
        "holdfast/storage/sqlite/sql/job.sql",
    ):
        assert needed in found


def test_the_sdist_has_no_junk(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        paths = [PurePosixPath(*PurePosixPath(each).parts[1:]) for each in archive.getnames()]
    for path in paths:
        assert path.parts[0] in SHIPPED or str(path) in BESIDE, path
        assert path.suffix not in JUNK, path
        assert BYTECODE not in path.parts, path
    assert set(map(str, paths)) >= BESIDE


def test_the_demo_locks_what_development_locks() -> None:
    demo = pins("requirements-demo.txt")
    assert demo
    assert demo <= pins("requirements-dev.txt")


def pins(name: str) -> set[tuple[str, str]]:
    """Read names and versions from a file of locked packages."""
    text = (ROOT / name).read_text(encoding="utf-8")
    return set(re.findall(r"^([\w.-]+)(?:\[.*\])?==(\S+)", text, re.MULTILINE))


def test_the_sdist_builds_the_same_wheel(sdist: Path, wheel: Path, tmp_path: Path) -> None:
    words = ["-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    done = subprocess.run(
        [sys.executable, *words, "--wheel-dir", str(tmp_path), str(sdist)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (built,) = tmp_path.glob("*.whl")
    assert names(built) == names(wheel)
