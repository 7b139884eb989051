"""One name, one meaning: what a newcomer greps for is there once."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path

from docs._ext.reference.api import SECTIONS

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "packages" / "holdfast-jobs" / "src" / "holdfast"
EXTENSIONS = {
    path.name.removeprefix("holdfast_"): path
    for path in ROOT.glob("packages/*/src/holdfast_*")
    if path.is_dir()
}

MIRRORS = ("cli", "contrib", "bench/peers", "celery")
"""Their modules are named after what they are about: a command, a contract, a module of Celery's."""

PARALLEL = (
    # a module for each noun: jobs, chains, cycles and so on
    {
        "admin",
        "client",
        "commands",
        "core",
        "storage/sqlite",
        "storage/store",
        "web/api",
        "dashboard",
    },
    # a module for each database or library
    {"client/adapters", "notify", "observe", "scheduler/doctor"},
    # the same parts for each dialect
    {".", "core", "storage", "storage/postgres", "storage/sqlite"},
    # a package that adds to the tables of the core
    {".", *EXTENSIONS, "admin", "app", "cli", "core", "settings"},
)
"""Folders in which the same name means the same thing."""

CIRCLES = (
    # an error says when the job runs again, and durations raise errors
    {"core.duration", "core.errors", "core.instants", "core.outcome"},
)
"""Modules that need one another when they run, and why; nothing else imports in a circle."""

PARTICIPLE = re.compile(
    r"_?([a-z]+(ed|ing)|told|shown|heard|held|left|kept|given|said|found|made|seen)"
)

NO_PARTICIPLES = {
    "need",
    "nothing",
    "ping",
    "seed",
    "setting",
    "warning",
    # what a read of the store finds, after its statement
    *("applied", "blocking", "finished", "held", "kept", "matching", "paused", "shared"),
    *("stored", "unhandled", "unqueued", "waited", "waiting"),
    # the words of Celery, of Django's tests and of our own test kit
    *("failed", "finished", "joined", "registered", "started", "using"),
}
"""Names that look like participles, and are none or read well."""

OWN_WORDS = re.compile(
    r"_?(most|turn|line_up|lined|unlined|is_resting|rests_until)|(.*_)?(gate|wakeup)(s|_.*)?|.*(MOST|LONGEST|HEAVIEST)_.*"
    r"|(.*[a-z])?(Gate(?!way)|Wakeup|Ungated).*"
)
"""Of limits: others say partition, queue, poll, round, signal and max."""

COLUMNS = {"gate", "gate_at"}
"""Fields of records are named as their columns are; why these keep their names is in ADR 0064."""

PROGRAMS = "bench/peers"
"""Programs of their own, in the words of other queues."""

DJANGO_COMMANDS = "django/management/commands"
"""Django finds a command by the name `Command`."""


def modules() -> Iterator[tuple[str, Path]]:
    """Every module with its folder."""
    for path in sorted(SOURCE.rglob("*.py")):
        yield path.parent.relative_to(SOURCE).as_posix(), path
    for name, source in EXTENSIONS.items():
        for path in sorted(source.rglob("*.py")):
            yield (Path(name) / path.parent.relative_to(source)).as_posix(), path


@cache
def tree_of(path: Path) -> ast.Module:
    """A module's source as a tree."""
    return ast.parse(path.read_text())


def test_no_class_name_occurs_twice() -> None:
    homes = defaultdict(list)
    for folder, path in modules():
        if folder.startswith("bench/peers"):
            continue  # programs of their own, in the words of other queues
        for node in tree_of(path).body:
            if isinstance(node, ast.ClassDef):
                homes[node.name].append(path.relative_to(ROOT).as_posix())
    assert {name: paths for name, paths in homes.items() if len(paths) > 1} == {}


def test_no_alias_has_the_name_of_a_class() -> None:
    classes = {
        node.name
        for folder, path in modules()
        if folder != PROGRAMS
        for node in tree_of(path).body
        if isinstance(node, ast.ClassDef)
    }
    assert [
        f"{path.relative_to(ROOT).as_posix()}: {name}"
        for folder, path in modules()
        if folder not in (PROGRAMS, DJANGO_COMMANDS)
        for name in aliases_in(tree_of(path))
        if name in classes
    ] == []


def aliases_in(tree: ast.Module) -> Iterator[str]:
    """The names that a module gives to types, to what it imports, or to anything that looks like a class."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from (each.asname for each in node.names if each.asname not in (None, each.name))
    for node in tree.body:
        if isinstance(node, ast.Assign):
            yield from (each.id for each in node.targets if isinstance(each, ast.Name))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id


def test_code_speaks_of_limits_in_the_words_of_the_field() -> None:
    found = {
        f"{path.relative_to(ROOT).as_posix()}: {name}"
        for folder, path in modules()
        if folder != PROGRAMS
        for name in given_names(tree_of(path))
        if OWN_WORDS.fullmatch(name) and name not in COLUMNS
    }
    assert sorted(found) == []


def test_statements_speak_of_limits_in_the_words_of_the_field() -> None:
    """Tables and columns keep the names that they were made with."""
    heading = re.compile(r"-- (?:name|fragment): (.*)")
    own = re.compile(
        r"(?<![.\w])(gates?|wakeups?|woken|wake_\w+|\w+_(lines?|looks?|gates?)|lined)\b"
    )
    found = []
    for path in sorted(SOURCE.glob("storage/*/sql/*.sql")):
        for line in path.read_text().splitlines():
            text = match[1] if (match := heading.match(line)) else line.partition("--")[2]
            if own.search(re.sub(r"\[.*?\]", "", text)):
                found.append(f"{path.relative_to(ROOT).as_posix()}: {line}")
    assert found == []


def given_names(tree: ast.Module) -> Iterator[str]:
    """The names that a module gives: to functions, classes, parameters, variables and fields."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr


def test_no_module_name_occurs_twice_outside_parallel_folders() -> None:
    homes = defaultdict(set)
    for folder, path in modules():
        if not path.stem.startswith("__") and not folder.startswith(MIRRORS):
            homes[path.stem].add(folder)
    assert {
        name: sorted(folders)
        for name, folders in homes.items()
        if len(folders) > 1 and not any(folders <= parallel for parallel in PARALLEL)
    } == {}


def test_functions_are_named_by_verbs_and_nouns_not_by_participles() -> None:
    found = [
        f"{path.relative_to(ROOT).as_posix()}: {node.name}"
        for folder, path in modules()
        if folder != PROGRAMS
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and PARTICIPLE.fullmatch(node.name)
        and node.name.lstrip("_") not in NO_PARTICIPLES
        and not any("property" in ast.unparse(each) for each in node.decorator_list)
    ]
    assert found == [], "verbs for acts, is_ for questions, on_ for callbacks, nouns for the rest"


def test_properties_that_answer_yes_or_no_are_named_as_questions() -> None:
    question = re.compile(r"_?(is|are|was|has|can|[a-z]+s)_.+")
    public = {
        "aborted",
        "alive",
        "ignore_result",
    }  # of jobs and runs, as documented; of notifiers, which others write; of tasks, as Celery has it
    assert [
        f"{path.relative_to(ROOT).as_posix()}: {node.name}"
        for _, path in modules()
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.FunctionDef)
        and any("property" in ast.unparse(each) for each in node.decorator_list)
        and node.returns is not None
        and ast.unparse(node.returns) == "bool"
        and not question.fullmatch(node.name)
        and node.name not in public
    ] == []


def test_tests_skip_only_for_what_is_named_at_the_end_of_the_run() -> None:
    silent = {
        "skip",
        "skipif",
        "importorskip",
        "xfail",
        "SkipTest",
        "skipIf",
        "skipUnless",
        "skipTest",
    }
    # To read the text costs a hundredth of what its tree costs.
    words = re.compile("|".join(silent))
    found = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in sorted([*ROOT.glob("tests/**/*.py"), *ROOT.glob("apps/*/tests/**/*.py")])
        # The contract of a task backend skips what a backend says it does not support, as Django lets it.
        if path not in (ROOT / "tests/support/absent.py", ROOT / "tests/django/task_contract.py")
        if words.search(path.read_text())
        for name, line in referred_names(tree_of(path))
        if name in silent
    ]
    assert found == [], "call tests.support.absent.skip_because_absent"


def referred_names(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """What a module reaches in others and in objects, or imports from them, with its lines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            yield node.attr, node.lineno
        elif isinstance(node, ast.ImportFrom):
            yield from ((each.name, node.lineno) for each in node.names)


def test_the_engine_has_55_000_lines_at_most() -> None:
    assert sum(len(path.read_bytes().splitlines()) for path in SOURCE.rglob("*.py")) <= 55_000


def test_the_engine_knows_no_extension_by_name() -> None:
    modules = re.compile(rf"\bholdfast_({'|'.join(EXTENSIONS)})\b[.:\"']")
    assert [
        f"{path.relative_to(SOURCE)}: {found[0]}"
        for path in sorted(SOURCE.rglob("*.py"))
        for found in modules.finditer(path.read_text())
    ] == []


def test_modules_import_in_no_circle() -> None:
    imports = {name: set(imported_at_run_time(path)) for name, path in names().items()}
    reached = {name: reachable(name, imports) for name in imports}
    circles = {
        frozenset(other for other in reached[name] if name in reached[other])
        for name in imports
        if name in reached[name]
    }
    assert circles == {frozenset(each) for each in CIRCLES}


@cache
def names() -> dict[str, Path]:
    """Every module by its name in the package."""
    found = {}
    for path in SOURCE.rglob("*.py"):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported_at_run_time(path: Path) -> Iterator[str]:
    """The modules of the package that one imports, also within functions; not for types alone."""
    known = names()
    nodes: list[ast.AST] = [tree_of(path)]
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            nodes += node.orelse
            continue
        nodes += ast.iter_child_nodes(node)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("holdfast."):
            module = (node.module or "").removeprefix("holdfast.")
            for each in node.names:
                name = f"{module}.{each.name}"
                yield name if name in known else module


def reachable(name: str, imports: dict[str, set[str]]) -> set[str]:
    """Everything that a module leads to."""
    reached: set[str] = set()
    nodes = list(imports[name])
    while nodes:
        each = nodes.pop()
        if each not in reached:
            reached.add(each)
            nodes += imports.get(each, ())
    return reached


def test_the_applications_import_only_what_the_reference_documents() -> None:
    """They are models: what they need of Holdfast is public, or it is exported."""
    documented = {name for names in SECTIONS.values() for name in names}
    modules = {name.rpartition(".")[0] for name in documented} | {"holdfast.errors"}
    listed = {
        f"{module}.{name}"
        for module in modules
        for name in getattr(import_module(module), "__all__", ())
    }
    found = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in sorted(ROOT.glob("apps/*/src/**/*.py"))
        for name in imports_of_holdfast(path)
        if name not in documented | listed
    }
    assert not found


def imports_of_holdfast(path: Path) -> Iterator[str]:
    """Each name that a module imports of Holdfast's packages."""
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names if each.name.startswith("holdfast"))
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("holdfast"):
            yield from (f"{node.module}.{each.name}" for each in node.names)


CALLBACKS = {
    "Attempt.on_interrupt": "aborts a batch once all of its attempts are aborted",
    "ChildJob._send": "sends to the worker what a handler in another process says",
    "CycleRun._on_abort": "aborts a cycle's handler",
    "ProcessHandlers._on_begun": "a process has started, and the handler's own time begins",
    "Supervisor._on_started": "prints the process of a child",
    "Watchdog.on_hopeless": "ends the process of a blocked loop",
}
"""Functions that an object keeps and calls later; everything else that a part needs is an object it is given."""

GIVEN = {
    "Call",
    "MakeDrainer",
    "MakeWorker",
    "Middleware",
    "Next",
    "Now",
    "PrepareTx",
    "ResolveOutput",
    "WrapRun",
}
"""Types of functions that are no callbacks: clocks, factories, and what wraps or is the user's code."""


def test_the_parts_of_a_worker_are_connected_by_objects_not_by_callbacks() -> None:
    found = {
        name
        for folder in ("worker", "scheduler")
        for path in sorted((SOURCE / folder).rglob("*.py"))
        for name in stored_functions(tree_of(path))
    }
    assert found == set(CALLBACKS)
    assert len(CALLBACKS) <= 8


def stored_functions(tree: ast.Module) -> Iterator[str]:
    """The attributes of a module's classes that hold a function: those annotated so, and arguments that are kept."""
    aliases = {
        ast.unparse(node.targets[0])
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.value).startswith("Callable[")
    }
    functions = {"Callable"} | aliases - GIVEN
    for owner in (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)):
        for node in ast.walk(owner):
            if isinstance(node, ast.AnnAssign) and names_in(node.annotation) & functions:
                target = ast.unparse(node.target)
                if node in owner.body or target.startswith("self."):
                    yield f"{owner.name}.{target.removeprefix('self.')}"
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                given = {
                    each.arg
                    for each in [*node.args.args, *node.args.kwonlyargs]
                    if each.annotation is not None and names_in(each.annotation) & functions
                }
                for each in ast.walk(node):
                    if isinstance(each, ast.Assign) and ast.unparse(each.value) in given:
                        target = ast.unparse(each.targets[0])
                        if target.count(".") == 1:
                            yield f"{owner.name}.{target.removeprefix('self.')}"


def names_in(node: ast.expr) -> set[str]:
    """The names that an annotation is made of."""
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
