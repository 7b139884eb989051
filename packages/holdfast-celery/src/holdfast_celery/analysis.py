"""Reads the sources of a Celery project, without importing it, and says what of it is covered."""

from __future__ import annotations

import ast
import gc
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from holdfast.core.errors import SystemRefused
from holdfast_celery.companions import find_app, find_package, is_dotted_name, patched_name
from holdfast_celery.coverage import (
    CALLED_BY_CELERY,
    Kind,
    check_always_so,
    find_feature,
    modern_setting,
    refuse,
)
from holdfast_celery.errors import CeleryUnsupported

_SKIPPED = frozenset({"__pycache__", "node_modules", "venv", "site-packages", "build", "dist"})
OURS = "holdfast_celery"
_DJANGO_SETTINGS = "django/conf.py"
_CANVAS = frozenset({"chain", "group", "chord"})
_CALLED = _CANVAS | {"Celery", "crontab", "solar"}
_BY_HAND = "it cannot be read without running it: compare its names with the documentation"
_BY_HAND_IMPORT = f"import what you need from {OURS}; there is no module to fall back to"
_BY_HAND_TEXT = "nothing here has this name: test what your code does, or patch the task"
_NOT_READ = "not read here, since nothing depends on it"
_NOT_CELERYS = "no setting of Celery's: not read here either"
_PICKLED = "arguments are JSON: pass an id or a text, and make the object of it in the task"
_NAMING = re.compile(r"[Cc]elery|CELERY|config_from_object|@[\w.]+\.task\b")
"""What a file has that names applications, tasks or settings, or imports from Celery."""
_CALLING = re.compile(
    r"\.\s*(?:delay|apply|s|si|signature|subtask|retry|request|map|starmap|chunks|run|\w+_async|\w+_on_commit)\b"
)
"""What a file has that uses a task."""
_INSTALLED = re.compile(r"^INSTALLED_APPS\b[^=\n]*=\s*[\[(]", re.MULTILINE)
_MISSING = re.compile(r"\b(?:ImportError|ModuleNotFoundError|Exception)\b")
"""What is caught by a program that goes on without Celery."""
MODULES = frozenset({"canvas", "exceptions", "result", "schedules", "signals", "states"})
"""The modules of Celery's that we have, too."""

_BY_TEXT = frozenset({"patch", "setattr", "delattr", "spy", "import_module", "import_string"})
"""What is called with a text that names something to patch or to import."""
_DAYS = frozenset({"day_of_week", "day_of_month"})


@dataclass(frozen=True, slots=True, order=True)
class CeleryUse:
    """One use of Celery in a project: where, what, and what to write instead if it is not covered."""

    file: str
    line: int
    what: str
    covered: bool
    instead: str
    written: bool = False
    """Whether `--write` makes this change."""


@dataclass(frozen=True, slots=True)
class Removal:
    """An argument of a call, or an entry of a dict or list, that has nothing to change here."""

    container: ast.Call | ast.Dict | ast.List | ast.Tuple
    item: ast.AST


@dataclass(slots=True)
class FileChanges:
    """What of a file can be changed without knowing what the project is for, and what speaks against it."""

    imports: list[ast.ImportFrom | ast.alias] = field(default_factory=list)
    attributes: list[ast.Attribute] = field(default_factory=list)
    """What is used of `celery` where the package itself is imported."""
    removals: list[Removal] = field(default_factory=list)
    statements: list[ast.stmt] = field(default_factory=list)
    applications: list[ast.Call] = field(default_factory=list)
    settings_calls: list[ast.Call] = field(default_factory=list)
    installed_apps: list[ast.List | ast.Tuple] = field(default_factory=list)
    patched: list[tuple[ast.Constant, str]] = field(default_factory=list)
    """Texts that name a class of Celery's, and what takes its place."""
    doubts: list[CeleryUse] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.imports or self.removals or self.statements or self.patched)


@dataclass(slots=True)
class ProjectNames:
    """What a project calls its applications and tasks."""

    applications: set[str] = field(default_factory=set)
    tasks: set[str] = field(default_factory=set)
    namespaces: set[str] = field(default_factory=set)
    settings_modules: set[str] = field(default_factory=set)
    ignored: set[str] = field(default_factory=set)
    """Settings that config_from_object(ignore=…) leaves to Celery."""
    has_objects: bool = False
    """Whether arguments are not serialized as JSON, and can be any object."""
    has_own: bool = False
    """Whether an application is made in these files, and not only imported."""

    def are_used_in(self, text: str) -> bool:
        """Whether a file has words that can be a use of one of them; a search for each is fast, one for all is not."""
        if any(each in text for each in ("AsyncResult", "kombu", "billiard")):
            return True
        if "INSTALLED_APPS" in text and _INSTALLED.search(text):
            return True
        if any(f"{each}_" in text for each in self.namespaces):
            return True
        if any(f"{each}." in text or f"{each} as " in text for each in self.applications):
            return True
        return _CALLING.search(text) is not None and any(each in text for each in self.tasks)


class ParsedFile:
    """A file's tree, all of its nodes, and what it calls the names it imports from Celery."""

    def __init__(self, tree: ast.Module) -> None:
        self.tree = tree
        self.nodes = list(_walk(tree))
        self.imported = _celery_names(self.nodes)
        self.changes = FileChanges()


@dataclass(frozen=True, slots=True)
class Analysis:
    """What was found in a project."""

    files: int
    tasks: int
    findings: tuple[CeleryUse, ...]
    warnings: tuple[str, ...] = ()
    parsed: Mapping[str, ParsedFile] = field(default_factory=dict, repr=False)
    names: tuple[str, ...] = field(default=(), repr=False)
    """The names of all files."""

    @property
    def covered(self) -> tuple[CeleryUse, ...]:
        """What works with the import changed."""
        return tuple(each for each in self.findings if each.covered)

    @property
    def to_change(self) -> tuple[CeleryUse, ...]:
        """What has to be written in another way."""
        return tuple(each for each in self.findings if not each.covered)


InBatches = Callable[[Sequence[Path]], Iterable[Sequence[Path]]]
"""How to go through many files: all at once, or in batches that are shown as progress."""


def analyse(project: Path, batches: InBatches = lambda paths: [paths]) -> Analysis:
    """Read all Python files below a directory, or one file. Raises: SystemRefused when there are none."""
    is_collecting = gc.isenabled()
    # Trees are many small objects that all stay; the collector would go through them again and again.
    gc.disable()
    try:
        return _analyse(project, batches)
    finally:
        if is_collecting:
            gc.enable()


def _analyse(project: Path, batches: InBatches) -> Analysis:
    names = ProjectNames()
    findings: list[CeleryUse] = []
    sources: dict[str, str] = {}
    parsed: dict[str, ParsedFile] = {}

    def parse(files: Iterable[str], is_wanted: Callable[[str], object]) -> None:
        """Parse the files that have certain words: few have, and parsing is what takes time."""
        for file in [each for each in files if is_wanted(sources[each])]:
            try:
                parsed[file] = ParsedFile(ast.parse(sources.pop(file)))
            except (SyntaxError, ValueError) as error:
                line = getattr(error, "lineno", None) or 1
                what = "a file that cannot be parsed"
                findings.append(CeleryUse(file, line, what, False, str(error)))

    for batch in batches(python_files(project)):
        read = {_place(project, each): each for each in batch}
        sources |= {name: path.read_text("utf-8-sig", "replace") for name, path in read.items()}
        parse(read, _NAMING.search)
    if not sources and not parsed and not findings:
        raise SystemRefused(f"{project}: no Python files found")
    for each in parsed.values():
        _collect_applications(each, names)
    for each in parsed.values():
        _collect_names(each, names)
    parse(list(sources), names.are_used_in)
    files = 0
    for file, each in parsed.items():
        reader = FileReader(file, names, each.changes)
        reader.read(each)
        findings += reader.findings
        files += bool(reader.findings)
    untouched = {file for file, each in parsed.items() if each.changes.doubts}
    found = tuple(
        sorted(
            {replace(each, written=False) if each.file in untouched else each for each in findings}
        )
    )
    warnings = tuple(_warnings(names, parsed))
    return Analysis(files, len(names.tasks), found, warnings, parsed, (*parsed, *sources))


def _warnings(names: ProjectNames, parsed: Mapping[str, ParsedFile]) -> Iterator[str]:
    has_tasks = names.tasks or any(each.imported for each in parsed.values())
    if has_tasks and not names.has_own:
        yield (
            "no application, as in app = Celery(…), is in these files: its settings are not checked, and "
            "tasks of @app.task may be missed; name the whole project"
        )


def python_files(project: Path) -> list[Path]:
    """Return the Python files of a project, without those of environments and hidden folders."""
    if project.is_file():
        return [project]
    found: list[Path] = []
    for folder, folders, files in os.walk(project):
        folders[:] = sorted(
            each for each in folders if each not in _SKIPPED and not each.startswith(".")
        )
        found += [Path(folder, name) for name in sorted(files) if name.endswith(".py")]
    # Editors leave links to nowhere beside a file that is open.
    return [each for each in found if each.is_file()]


def _place(project: Path, file: Path) -> str:
    return file.name if file == project else file.relative_to(project).as_posix()


def _collect_applications(file: ParsedFile, names: ProjectNames) -> None:
    for node in file.nodes:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if _is_named(node.value, "Celery", file.imported):
                names.has_own = True
                names.applications |= {each.id for each in targets if isinstance(each, ast.Name)}


def _collect_names(file: ParsedFile, names: ProjectNames) -> None:
    outside = _outside_applications(file.nodes)
    for node in file.nodes:
        if isinstance(node, ast.Call) and _last_name(node.func) == "config_from_object":
            _note_settings(node, names)
        elif isinstance(node, ast.Assign):
            targets = {_last_name(each).lower() for each in node.targets}
            serializer = _literal(node.value)
            if any(each.endswith("task_serializer") for each in targets):
                names.has_objects |= isinstance(serializer, str) and serializer != "json"
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for each in node.decorator_list:
                owner = _task_owner(each)
                if owner in outside:
                    names.applications.add(owner)
                if _is_task_decorator(each, file.imported, names):
                    names.tasks.add(node.name)


def _outside_applications(nodes: Iterable[ast.AST]) -> set[str]:
    """Return the names that a file imports from a module `celery` of the project's own, where applications are."""
    return {
        each.asname or each.name
        for node in nodes
        if isinstance(node, ast.ImportFrom)
        and (node.module or "").rpartition(".")[2] == "celery"
        and (node.level or node.module != "celery")
        for each in node.names
    }


def _note_settings(call: ast.Call, names: ProjectNames) -> None:
    given = {each.arg: each.value for each in call.keywords}
    names.ignored |= set(_literal(given["ignore"]) or ()) if "ignore" in given else set()
    namespace = given.get("namespace")
    if isinstance(namespace, ast.Constant) and isinstance(namespace.value, str):
        names.namespaces.add(namespace.value)
    elif call.args and isinstance(call.args[0], ast.Constant):
        module = str(call.args[0].value).partition(":")[0]
        names.settings_modules.add(f"{module.replace('.', '/')}.py")


def _celery_names(nodes: Iterable[ast.AST]) -> dict[str, str]:
    """Return what a file calls the names it imports from Celery."""
    found: dict[str, str] = {}
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and _is_celery(node.module) and not node.level:
            found |= {each.asname or each.name: each.name for each in node.names}
        elif isinstance(node, ast.Import):
            found |= {
                each.asname or each.name.partition(".")[0]: ""
                for each in node.names
                if _is_celery(each.name)
            }
    # A class that is derived from the application's makes applications, too.
    return found | {
        node.name: "Celery"
        for node in nodes
        if isinstance(node, ast.ClassDef)
        and any(_is_named(each, "Celery", found) for each in node.bases)
    }


def _is_celery(module: str | None) -> bool:
    """Whether a module is Celery's, or ours that takes its place."""
    return (module or "").partition(".")[0] in ("celery", OURS)


def _is_moved(module: str | None) -> bool:
    return (module or "").partition(".")[0] == OURS


def _children(node: ast.AST) -> Iterator[ast.AST]:
    """Return the nodes below one that can have something of interest below them: twice as fast as going through all."""
    for name in node._fields:
        value = getattr(node, name, None)
        if isinstance(value, list):
            for each in value:
                if isinstance(each, ast.AST):
                    yield each
        elif isinstance(value, ast.AST) and not isinstance(value, ast.expr_context):
            yield value


def _walk(tree: ast.AST) -> Iterator[ast.AST]:
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, ast.Name | ast.Constant):
            waiting.extend(_children(node))


def _callee(node: ast.expr) -> ast.expr:
    return node.func if isinstance(node, ast.Call) else node


def _celery_name(node: ast.expr, imported: Mapping[str, str]) -> str | None:
    """Return the name of Celery's that an expression is, or calls."""
    node = _callee(node)
    if isinstance(node, ast.Name):
        return imported.get(node.id) or None
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return node.attr if imported.get(node.value.id) == "" else None
    return None


def _is_named(node: ast.expr, name: str, imported: Mapping[str, str]) -> bool:
    return _celery_name(node, imported) == name


def _is_task_decorator(node: ast.expr, imported: Mapping[str, str], names: ProjectNames) -> bool:
    if _is_named(node, "shared_task", imported):
        return True
    return _task_owner(node) in names.applications | {"current_app"}


def _task_owner(decorator: ast.expr) -> str:
    """Return what a decorator calls the application whose `task` it is."""
    node = _callee(decorator)
    is_task = isinstance(node, ast.Attribute) and node.attr == "task"
    return _last_name(node.value) if isinstance(node, ast.Attribute) and is_task else ""


def _last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else ""


def _literal(node: ast.expr) -> Any:
    """Return the value of a literal, or None for what is computed."""
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


_TRAVELS = frozenset(
    {"Annotated", "Any", "Collection", "Dict", "Final", "Iterable", "List", "Literal", "Mapping"}
    | {"MutableMapping", "Optional", "Sequence", "Task", "Tuple", "Union"}
    | {"bool", "dict", "float", "int", "list", "object", "str", "tuple"}
    | {"Decimal", "UUID", "date", "datetime", "time", "timedelta"}
)
"""What annotations of arguments have that travel: JSON, and the types that are tagged."""


def _parts_of(annotation: ast.expr) -> Iterator[ast.expr]:
    """Return the types an annotation is made of, also of one that is a text."""
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        try:
            yield from _parts_of(ast.parse(annotation.value, mode="eval").body)
        except SyntaxError:
            return
    elif isinstance(annotation, ast.Subscript):
        yield annotation
        yield from _parts_of(annotation.value)
        if _last_name(annotation.value) != "Literal":
            yield from _parts_of(annotation.slice)
    elif isinstance(annotation, ast.BinOp):
        yield from _parts_of(annotation.left)
        yield from _parts_of(annotation.right)
    elif isinstance(annotation, ast.Tuple | ast.List):
        for each in annotation.elts:
            yield from _parts_of(each)
    elif isinstance(annotation, ast.Name | ast.Attribute):
        yield annotation


def _fits_json(part: ast.expr) -> bool:
    """Whether values of a type travel; the keys of a dict have to be texts."""
    if not isinstance(part, ast.Subscript):
        return _last_name(part) in _TRAVELS
    if _last_name(part.value) not in ("dict", "Dict", "Mapping", "MutableMapping"):
        return True
    keys = part.slice.elts[0] if isinstance(part.slice, ast.Tuple) and part.slice.elts else None
    return keys is None or _last_name(keys) in ("str", "Any")


class FileReader(ast.NodeVisitor):
    """Finds the uses of Celery in one file."""

    def __init__(self, file: str, names: ProjectNames, changes: FileChanges) -> None:
        self.findings: list[CeleryUse] = []
        self.changes = changes
        self._file = file
        self._names = names
        self._imported: dict[str, str] = {}
        self._tasks: set[str] = set()
        self._applications: set[str] = set()
        self._classes: set[str] = set()
        self._bound: list[str | None] = []
        self._results: set[str] = set()
        self._inspections: set[str] = set()
        self._optional = 0
        """How many blocks around this place go on without Celery if it is not installed."""

    def generic_visit(self, node: ast.AST) -> None:
        """Visit what is below a node."""
        for each in _children(node):
            self.visit(each)

    def read(self, file: ParsedFile) -> None:
        """Read the whole file."""
        self._imported = file.imported
        self._classes = {each.name for each in file.nodes if isinstance(each, ast.ClassDef)}
        self._tasks = set(self._names.tasks)
        self._applications = set(self._names.applications)
        for node in file.nodes:
            if isinstance(node, ast.ImportFrom) and not _is_celery(node.module):
                for each in node.names:
                    if each.asname and each.name in self._names.tasks:
                        self._tasks.add(each.asname)
                    if each.asname and each.name in self._names.applications:
                        self._applications.add(each.asname)
        for node in file.nodes:
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
                names = {each.id for each in node.targets if isinstance(each, ast.Name)}
                if self._is_result(node.value):
                    self._results |= names
                elif self._is_inspection(node.value):
                    self._inspections |= names
        self._read_settings(file.tree)
        self.visit(file.tree)

    def _is_result(self, node: ast.expr) -> bool:
        """Whether an expression is the result of a task: asked for by its id, or of a start."""
        if isinstance(node, ast.Name):
            return node.id in self._results
        if not isinstance(node, ast.Call):
            return False
        started = isinstance(node.func, ast.Attribute) and node.func.attr in (
            "delay",
            "apply_async",
        )
        return _last_name(node.func) == "AsyncResult" or (
            started and isinstance(node.func, ast.Attribute) and self._is_signature(node.func.value)
        )

    def _is_inspection(self, node: ast.expr) -> bool:
        """Whether an expression is `app.control` or `app.control.inspect()`."""
        if isinstance(node, ast.Name):
            return node.id in self._inspections
        if isinstance(node, ast.Call):
            return (
                isinstance(node.func, ast.Attribute)
                and node.func.attr == "inspect"
                and self._is_inspection(node.func.value)
            )
        return (
            isinstance(node, ast.Attribute)
            and node.attr == "control"
            and self._is_application(node.value)
        )

    def _add(
        self, node: ast.AST, what: str, kind: Kind, name: str, removal: Removal | None = None
    ) -> None:
        found = find_feature(kind, name)
        if found is None:
            error = refuse(kind, name)
            self._doubt(node, what, f"unknown: {error.help}")
            return
        can_write = found.is_removable and removal is not None
        if can_write and removal is not None:
            self.changes.removals.append(removal)
        self._report(node, what, found.is_covered, found.text, can_write)

    def _report(
        self, node: ast.AST, what: str, covered: bool, instead: str, written: bool = False
    ) -> None:
        line: int = getattr(node, "lineno", 1)
        self.findings.append(CeleryUse(self._file, line, what, covered, instead, written))

    def _doubt(self, node: ast.AST, what: str, why: str = _BY_HAND) -> None:
        """Report what cannot be judged by reading it; a file that has such a place is not written."""
        self._report(node, what, False, why)
        self.changes.doubts.append(self.findings[-1])

    def visit_Try(self, node: ast.Try) -> None:
        """Note where a program goes on if Celery is not installed: its import is a question, and not ours to answer."""
        caught = [
            "Exception" if each.type is None else ast.unparse(each.type) for each in node.handlers
        ]
        optional = any(_MISSING.search(each) for each in caught)
        self._optional += optional
        for each in node.body:
            self.visit(each)
        self._optional -= optional
        for part in (*node.handlers, *node.orelse, *node.finalbody):
            self.visit(part)

    def visit_Import(self, node: ast.Import) -> None:
        """Find `import celery`, which can be moved if nothing but names of the package itself are used of it."""
        for each in node.names:
            instead = find_package(each.name)
            if instead is not None:
                self._report(node, f"import {each.name}", False, instead)
            if _is_celery(each.name) and not _is_moved(each.name):
                package, _, module = each.name.partition(".")
                if self._optional or (module and module not in MODULES):
                    self._doubt(node, f"import {each.name}", _BY_HAND_IMPORT)
                else:
                    moved = f"import {each.name.replace(package, OURS)}"
                    self._report(node, f"import {each.name}", True, moved)
                    self.changes.imports.append(each)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        """Look up each name that is imported from Celery, and what is imported from packages beside it."""
        instead = None if node.level else find_package(node.module)
        if instead is not None:
            self._report(node, f"from {node.module} import …", False, instead)
        if node.level or not _is_celery(node.module) or _is_moved(node.module):
            return
        if self._optional or node.names[0].name == "*":
            self._doubt(node, f"from {node.module} import {node.names[0].name}", _BY_HAND_IMPORT)
            return
        part = (node.module or "").split(".")[1:2]
        for each in node.names:
            if not part and each.name in MODULES:
                self._report(
                    node, f"from celery import {each.name}", True, f"from {OURS} import {each.name}"
                )
                continue
            known = find_feature("import", each.name) is not None
            name = part[0] if part and part[0] != "signals" and not known else each.name
            self._add(node, f"from {node.module} import {each.name}", "import", name)
        self.changes.imports.append(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        """Find tasks that are classes, and the options that they give their tasks."""
        for base in node.bases:
            is_task = _is_named(base, "Task", self._imported)
            if is_task:
                self._add(node, f"class {node.name}(Task)", "import", "Task")
            if is_task or self._is_application_task(base):
                self._read_class(node)
        self.generic_visit(node)

    def _is_application_task(self, node: ast.expr) -> bool:
        is_task = isinstance(node, ast.Attribute) and node.attr == "Task"
        return is_task and self._is_application(node.value)  # type: ignore[attr-defined]

    def _read_class(self, node: ast.ClassDef) -> None:
        """Find what a base class of tasks says that means nothing here."""
        for each in node.body:
            value = each.value if isinstance(each, ast.Assign) else None
            targets = each.targets if isinstance(each, ast.Assign) else []
            names = [each.name] if isinstance(each, ast.FunctionDef) else map(_last_name, targets)
            for name in names:
                what = f"class {node.name}: {name}"
                if name in CALLED_BY_CELERY:
                    self._add(each, what, "task attribute", name)
                elif value is not None and find_feature("task option", name) is not None:
                    self._read_option(value, what, "task option", name)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        """Find tasks, and what they do with themselves."""
        bound = self._bound[-1] if self._bound else None
        for each in node.decorator_list:
            if _is_task_decorator(each, self._imported, self._names):
                is_bound = self._read_decorator(each, node)
                bound = node.args.args[0].arg if is_bound and node.args.args else bound
        self._bound.append(bound)
        self.generic_visit(node)
        self._bound.pop()

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815

    def _read_decorator(
        self, decorator: ast.expr, function: ast.FunctionDef | ast.AsyncFunctionDef
    ) -> bool:
        written = f"@{ast.unparse(_callee(decorator))}"
        if isinstance(function, ast.AsyncFunctionDef):
            instead = f'write @app.job("{function.name}") and take the job: async def {function.name}(job)'
            self._report(function, f"{written} async def {function.name}", False, instead)
            return False
        self._report(function, f"{written} {function.name}", True, "the task")
        if self._names.has_objects:
            self._read_parameters(function)
        if not isinstance(decorator, ast.Call):
            return False
        keywords = decorator.keywords
        self._read_keywords(decorator, keywords, written, "task option")
        return any(each.arg == "bind" and _literal(each.value) is True for each in keywords)

    def _read_parameters(self, function: ast.FunctionDef) -> None:
        """Find parameters that no JSON becomes; one with a value of its own is seldom passed."""
        arguments = function.args
        places = [*arguments.posonlyargs, *arguments.args]
        values: list[ast.expr | None] = [None] * (len(places) - len(arguments.defaults))
        pairs = [
            *zip(places, [*values, *arguments.defaults], strict=True),
            *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True),
        ]
        for each, value in pairs:
            if each.annotation is None or (value is not None and not _is_none(value)):
                continue
            parts = list(_parts_of(each.annotation))
            if any(_last_name(part) == "Callable" for part in parts):
                continue  # those who call the function itself give it one
            if not all(map(_fits_json, parts)):
                what = f"{function.name}({each.arg}: {ast.unparse(each.annotation)})"
                self._report(each, what, False, _PICKLED)

    def _read_keywords(
        self, call: ast.Call, keywords: Sequence[ast.keyword], written: str, kind: Kind
    ) -> None:
        for each in keywords:
            if each.arg is None:
                self._doubt(each.value, f"{written}(**{ast.unparse(each.value)})")
                continue
            what = f"{written}({each.arg}=…)"
            self._read_option(each.value, what, kind, each.arg, Removal(call, each))
            if each.arg == "retry_kwargs" and isinstance(each.value, ast.Dict):
                self._read_dict(each.value, f"{written}(retry_kwargs=…)", "retry option")

    def _read_option(
        self, value: ast.expr, what: str, kind: Kind, name: str, removal: Removal | None = None
    ) -> None:
        literal = _literal(value)
        try:
            if literal is not None:
                check_always_so(kind, {name: literal})
        except CeleryUnsupported as error:
            self._report(value, what, False, str(error.help))
            return
        self._add(value, what, kind, name, removal)

    def _read_dict(self, node: ast.Dict, what: str, kind: Kind) -> None:
        for key, value in zip(node.keys, node.values, strict=True):
            name = _literal(key) if key is not None else None
            if not isinstance(name, str) or key is None:
                self._doubt(value, what)
            elif kind == "retry option" and name == "max_retries":
                continue  # folded into the decorator's own
            else:
                self._read_option(value, f"{what}[{name!r}]", kind, name, Removal(node, key))

    def visit_Call(self, node: ast.Call) -> None:
        """Find applications, starts, canvases and settings."""
        function = node.func
        if _last_name(function) in _BY_TEXT:
            self._read_texts(node)
        if isinstance(function, ast.Call) and _is_task_decorator(
            function, self._imported, self._names
        ):
            written = ast.unparse(function.func)
            self._read_keywords(function, function.keywords, written, "task option")
        name = self._canvas_name(function)
        if name == "Celery":
            written = ast.unparse(function)
            self._report(node, f"{written}(…)", True, "the application")
            self._read_keywords(node, node.keywords, written, "application argument")
            if _last_name(function) not in self._classes:
                # What the constructor of a derived class takes is its own.
                self.changes.applications.append(node)
            if len(node.args) > 1:
                self._doubt(node, f"{written}(…, …)", "name all arguments but the first")
        elif name is not None:
            self._add(node, f"{name}(…)", "import", name)
            if name == "crontab":
                self._read_crontab(node)
        elif isinstance(function, ast.Attribute):
            self._read_method(node, function)
        self.generic_visit(node)

    def _read_texts(self, node: ast.Call) -> None:
        """Find what is patched or imported by a name of Celery's."""
        for each in node.args:
            text = each.value if isinstance(each, ast.Constant) else None
            if isinstance(each, ast.Constant) and isinstance(text, str) and is_dotted_name(text):
                ours = patched_name(text)
                instead = _BY_HAND_TEXT if ours is None else f'"{ours}"'
                self._report(each, f'"{text}"', False, instead, ours is not None)
                if ours is not None:
                    self.changes.patched.append((each, ours))

    def _canvas_name(self, function: ast.expr) -> str | None:
        found = _celery_name(function, self._imported)
        return found if found in _CALLED else None

    def _read_crontab(self, node: ast.Call) -> None:
        given = {each.arg for each in node.keywords if _literal(each.value) != "*"}
        if given >= _DAYS:
            self._report(
                node,
                "crontab(day_of_week=…, day_of_month=…)",
                False,
                "in Celery both must match: keep one and check the other in the task",
            )

    def _read_method(self, node: ast.Call, function: ast.Attribute) -> None:
        if function.attr in ("apply", "apply_async", "set", "signature"):
            if self._is_signature(function.value):
                options = _options_of(node, function.attr)
                self._read_keywords(node, options, ast.unparse(function), "call option")
        elif function.attr == "send_task" and _last_name(function.value) in self._applications:
            self._read_keywords(node, node.keywords, ast.unparse(function), "call option")
        elif function.attr == "retry" and self._is_bound(function.value):
            self._read_keywords(node, node.keywords, ast.unparse(function), "retry option")
        elif function.attr == "update" and self._is_conf(function.value):
            self._read_settings_of(node)
        elif function.attr == "config_from_object" and self._is_application(function.value):
            self.changes.settings_calls.append(node)

    def _is_signature(self, node: ast.expr) -> bool:
        """Whether an expression is a task, or a signature or canvas made in place."""
        if _last_name(node) in self._tasks or self._is_bound(node):
            return True
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
            return self._is_signature(node.left) or self._is_signature(node.right)
        if not isinstance(node, ast.Call):
            return False
        if self._canvas_name(node.func) in _CANVAS:
            return True
        return isinstance(node.func, ast.Attribute) and self._is_signature(node.func.value)

    def _is_bound(self, node: ast.expr) -> bool:
        return bool(self._bound) and isinstance(node, ast.Name) and node.id == self._bound[-1]

    def _is_application(self, node: ast.expr) -> bool:
        return _last_name(node) in self._applications

    def _is_conf(self, node: ast.expr) -> bool:
        return (
            isinstance(node, ast.Attribute)
            and node.attr == "conf"
            and self._is_application(node.value)
        )

    def visit_Attribute(self, node: ast.Attribute) -> None:
        """Find what is used of the package, and of applications, tasks, requests and results."""
        if not self._read_package(node):
            self._read_attribute(node, node.value)
        self.generic_visit(node)

    def _read_package(self, node: ast.Attribute) -> bool:
        """Look up what is used by the name of Celery's package or of a module of it."""
        value = node.value
        if self._is_package(value):
            self.changes.attributes.append(node)
            if node.attr in MODULES:
                return True
        elif isinstance(value, ast.Attribute) and self._is_package(value.value):
            if value.attr not in MODULES:
                return False
        elif not isinstance(value, ast.Name) or self._imported.get(value.id) != "signals":
            return False
        self._add(node, ast.unparse(node), "import", node.attr)
        return True

    def _read_attribute(self, node: ast.Attribute, value: ast.expr) -> None:
        if self._is_application(value) and node.attr != "task":
            self._add_known(node, "application attribute")
        elif self._is_bound(value) or (
            _last_name(value) in self._tasks and find_feature("task attribute", node.attr)
        ):
            self._add_known(node, "task attribute")
        elif isinstance(value, ast.Attribute) and value.attr == "request":
            if self._is_bound(value.value):
                self._add(node, ast.unparse(node), "request attribute", node.attr)
        elif self._is_inspection(value):
            self._add_known(node, "control attribute")
        elif self._is_result(value):
            self._add_known(node, "result attribute")
        elif isinstance(value, ast.Call) and self._is_signature(value):
            found = find_feature("signature attribute", node.attr)
            if found is not None and not found.is_covered:
                self._add(node, ast.unparse(node), "signature attribute", node.attr)

    def _is_package(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Name) and self._imported.get(node.id) == ""

    def _add_known(self, node: ast.Attribute, kind: Kind) -> None:
        if find_feature(kind, node.attr) is not None:
            self._add(node, ast.unparse(node), kind, node.attr)

    def visit_Assign(self, node: ast.Assign) -> None:
        """Find settings of an application."""
        place = node if len(node.targets) == 1 else None
        for target in node.targets:
            if isinstance(target, ast.Attribute) and self._is_conf(target.value):
                self._read_setting(node.value, f"conf.{target.attr}", target.attr, place)
            elif isinstance(target, ast.Subscript) and self._is_conf(target.value):
                name = _literal(target.slice)
                self._read_setting(node.value, f"conf[{name!r}]", str(name), place)
        self.generic_visit(node)

    def _read_settings_of(self, call: ast.Call) -> None:
        for each in call.keywords:
            if each.arg is not None:
                self._read_setting(each.value, f"conf.{each.arg}", each.arg, Removal(call, each))
        for argument in [*call.args, *(each.value for each in call.keywords if each.arg is None)]:
            if not isinstance(argument, ast.Dict):
                self._doubt(argument, "conf.update(…)")
                continue
            for key, value in zip(argument.keys, argument.values, strict=True):
                name = _literal(key) if key is not None else None
                removal = Removal(argument, key) if key is not None else None
                self._read_setting(value, f"conf[{name!r}]", str(name), removal)

    def _read_settings(self, tree: ast.Module) -> None:
        """Find settings that config_from_object reads from this file."""
        is_module = self._file.endswith(tuple(self._names.settings_modules)) or (
            _DJANGO_SETTINGS in self._names.settings_modules and "settings" in self._file
        )
        for node in _module_statements(tree.body):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                name = _last_name(target)
                if name == "INSTALLED_APPS":
                    self._read_installed(node)
                if node.value is None:
                    continue
                for each in self._names.namespaces:
                    if name.startswith(f"{each}_"):
                        setting = name.removeprefix(f"{each}_").lower()
                        self._read_module_setting(node.value, name, setting)
                modern = modern_setting(name) if name.isupper() else name
                if is_module and modern and find_feature("setting", modern) is not None:
                    self._read_module_setting(node.value, name, modern)

    def _read_installed(self, node: ast.Assign | ast.AnnAssign | ast.AugAssign) -> None:
        listed = node.value if isinstance(node.value, ast.List | ast.Tuple) else None
        for each in ast.walk(node):
            app = each.value if isinstance(each, ast.Constant) else None
            if not isinstance(app, str):
                continue
            instead = find_app(app)
            if instead is None:
                continue
            can_write = app == "celery" and listed is not None and each in listed.elts
            if can_write and listed is not None:
                self.changes.removals.append(Removal(listed, each))
            self._report(each, f"INSTALLED_APPS: {app}", False, instead, can_write)
        if not isinstance(node, ast.AugAssign) and listed is not None:
            self.changes.installed_apps.append(listed)

    def _read_module_setting(self, value: ast.expr, what: str, name: str) -> None:
        """Look up a setting that config_from_object finds in a module, which others may read, too."""
        found = find_feature("setting", name)
        if name in self._names.ignored:
            self._report(value, what, True, "left to Celery")
        elif found is None:
            self._report(value, what, True, _NOT_CELERYS)
        elif found.is_removable:
            self._report(value, what, True, _NOT_READ)
        else:
            self._read_setting(value, what, name, None)

    def _read_setting(
        self, value: ast.expr, what: str, name: str, place: Removal | ast.stmt | None
    ) -> None:
        """Look up a setting; where it is says how it is left out: with its argument or its statement."""
        found = find_feature("setting", name)
        if found is not None and found.is_removable and not isinstance(place, Removal):
            self._report(value, what, False, found.text, place is not None)
            if place is not None:
                self.changes.statements.append(place)
            return
        self._read_option(
            value, what, "setting", name, place if isinstance(place, Removal) else None
        )
        if name == "beat_schedule" and isinstance(value, ast.Dict):
            for key, entry in zip(value.keys, value.values, strict=True):
                self._read_entry(str(_literal(key) if key is not None else "…"), entry)

    def _read_entry(self, name: str, entry: ast.expr) -> None:
        what = f"beat entry {name!r}"
        if not isinstance(entry, ast.Dict):
            self._doubt(entry, what)
            return
        self._report(entry, what, True, "a cycle")
        for key, value in zip(entry.keys, entry.values, strict=True):
            part = _literal(key) if key is not None else None
            if part == "options" and isinstance(value, ast.Dict):
                self._read_dict(value, f"{what} options", "call option")
            elif part == "relative" and _literal(value):
                self._report(value, f"{what} relative", False, "remove it")


def _module_statements(
    body: Sequence[ast.stmt],
) -> Iterator[ast.Assign | ast.AnnAssign | ast.AugAssign]:
    """Return the assignments of a module, also those below `if`, `try` and `with`."""
    for node in body:
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
            yield node
        elif isinstance(node, ast.If | ast.Try | ast.With):
            handlers = node.handlers if isinstance(node, ast.Try) else []
            for part in (node, *handlers):
                for name in ("body", "orelse", "finalbody"):
                    yield from _module_statements(getattr(part, name, []))


_OWN_OPTIONS = {"set": ("immutable",), "signature": ("immutable",), "apply": ("throw",)}


def _options_of(call: ast.Call, method: str) -> list[ast.keyword]:
    own = _OWN_OPTIONS.get(method, ())
    return [each for each in call.keywords if each.arg not in own]
