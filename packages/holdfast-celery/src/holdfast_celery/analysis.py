"""Reads the sources of a Celery project, without importing it, and says what of it is covered."""

from __future__ import annotations

import ast
import gc
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holdfast.core.errors import SystemRefused
from holdfast_celery.coverage import (
    Kind,
    check_always_so,
    find_feature,
    refuse,
)
from holdfast_celery.errors import CeleryUnsupported

_SKIPPED = frozenset({"__pycache__", "node_modules", "venv", "site-packages", "build", "dist"})
_CANVAS = frozenset({"chain", "group", "chord"})
_BY_HAND = "it cannot be read without running it: compare its names with the documentation"
_BROKER = "there is no broker: leave its queues and serializers out; payloads are JSON"
_NAMING = re.compile(r"celery|config_from_object|\.task\b", re.IGNORECASE)
"""What a file has that names applications, tasks or settings, or imports from Celery."""

_APPS = {
    "django_celery_beat": "write its schedules as beat_schedule or cycles, and remove it",
    "django_celery_results": "results are kept with their jobs; remove it",
}
_DAYS = frozenset({"day_of_week", "day_of_month"})


@dataclass(frozen=True, slots=True, order=True)
class CeleryUse:
    """One use of Celery in a project: where, what, and what to write instead if it is not covered."""

    file: str
    line: int
    what: str
    covered: bool
    instead: str


@dataclass(slots=True)
class ProjectNames:
    """What a project calls its applications and tasks."""

    applications: set[str] = field(default_factory=set)
    tasks: set[str] = field(default_factory=set)
    namespaces: set[str] = field(default_factory=set)
    settings_modules: set[str] = field(default_factory=set)

    def pattern(self) -> re.Pattern[str]:
        """Return what a file has that uses one of them."""
        words = [rf"{re.escape(each)}\b" for each in (*self.tasks, "AsyncResult", "kombu")]
        words += [rf"{re.escape(each)}(?:\.|\s+as\s)" for each in self.applications]
        words += [rf"{re.escape(each)}_" for each in self.namespaces]
        return re.compile(rf"\b(?:{'|'.join(sorted(words))})")


class ParsedFile:
    """A file's tree, all of its nodes, and what it calls the names it imports from Celery."""

    def __init__(self, tree: ast.Module) -> None:
        self.tree = tree
        self.nodes = list(ast.walk(tree))
        self.imported = _celery_names(self.nodes)


@dataclass(frozen=True, slots=True)
class Analysis:
    """What was found in a project."""

    files: int
    tasks: int
    findings: tuple[CeleryUse, ...]

    @property
    def covered(self) -> tuple[CeleryUse, ...]:
        """What works with the import changed."""
        return tuple(each for each in self.findings if each.covered)

    @property
    def to_change(self) -> tuple[CeleryUse, ...]:
        """What has to be written in another way."""
        return tuple(each for each in self.findings if not each.covered)


def analyse(project: Path) -> Analysis:
    """Read all Python files below a directory, or one file. Raises: SystemRefused when there are none."""
    is_collecting = gc.isenabled()
    # Trees are many small objects that all stay; the collector would go through them again and again.
    gc.disable()
    try:
        return _analyse(project)
    finally:
        if is_collecting:
            gc.enable()


def _analyse(project: Path) -> Analysis:
    sources = dict(_sources(project))
    if not sources:
        raise SystemRefused(f"{project}: no Python files found")
    names = ProjectNames()
    findings: list[CeleryUse] = []
    parsed: dict[str, ParsedFile] = {}

    def parse(pattern: re.Pattern[str]) -> None:
        """Parse the files that have a word of these: few have, and parsing is what takes time."""
        for file in [name for name, text in sources.items() if pattern.search(text)]:
            try:
                parsed[file] = ParsedFile(ast.parse(sources.pop(file)))
            except (SyntaxError, ValueError) as error:
                line = getattr(error, "lineno", None) or 1
                what = "a file that cannot be parsed"
                findings.append(CeleryUse(file, line, what, False, str(error)))

    parse(_NAMING)
    for each in parsed.values():
        _collect_applications(each, names)
    for each in parsed.values():
        _collect_names(each, names)
    parse(names.pattern())
    files = 0
    for file, each in parsed.items():
        reader = FileReader(file, names)
        reader.read(each)
        findings += reader.findings
        files += bool(reader.findings)
    return Analysis(files, len(names.tasks), tuple(sorted(set(findings))))


def _sources(project: Path) -> Iterator[tuple[str, str]]:
    if project.is_file():
        yield project.name, project.read_text(encoding="utf-8", errors="replace")
        return
    for folder, folders, files in os.walk(project):
        folders[:] = sorted(
            each for each in folders if each not in _SKIPPED and not each.startswith(".")
        )
        for name in sorted(files):
            if name.endswith(".py"):
                path = Path(folder, name)
                where = path.relative_to(project).as_posix()
                yield where, path.read_text(encoding="utf-8", errors="replace")


def _collect_applications(file: ParsedFile, names: ProjectNames) -> None:
    for node in file.nodes:
        if isinstance(node, ast.Assign) and _is_named(node.value, "Celery", file.imported):
            names.applications |= {each.id for each in node.targets if isinstance(each, ast.Name)}


def _collect_names(file: ParsedFile, names: ProjectNames) -> None:
    for node in file.nodes:
        if isinstance(node, ast.Call) and _last_name(node.func) == "config_from_object":
            _note_settings(node, names)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and any(
            _is_task_decorator(each, file.imported, names) for each in node.decorator_list
        ):
            names.tasks.add(node.name)


def _note_settings(call: ast.Call, names: ProjectNames) -> None:
    given = {each.arg: each.value for each in call.keywords}
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
    return found


def _is_celery(module: str | None) -> bool:
    return module is not None and (module == "celery" or module.startswith("celery."))


def _callee(node: ast.expr) -> ast.expr:
    return node.func if isinstance(node, ast.Call) else node


def _is_named(node: ast.expr, name: str, imported: Mapping[str, str]) -> bool:
    """Whether an expression is this name of Celery's, or a call of it."""
    node = _callee(node)
    if isinstance(node, ast.Name):
        return imported.get(node.id) == name
    return (
        isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and imported.get(node.value.id) == ""
        and node.attr == name
    )


def _is_task_decorator(node: ast.expr, imported: Mapping[str, str], names: ProjectNames) -> bool:
    if _is_named(node, "shared_task", imported):
        return True
    node = _callee(node)
    return (
        isinstance(node, ast.Attribute)
        and node.attr == "task"
        and _last_name(node.value) in names.applications | {"current_app"}
    )


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


class FileReader(ast.NodeVisitor):
    """Finds the uses of Celery in one file."""

    def __init__(self, file: str, names: ProjectNames) -> None:
        self.findings: list[CeleryUse] = []
        self._file = file
        self._names = names
        self._imported: dict[str, str] = {}
        self._tasks: set[str] = set()
        self._applications: set[str] = set()
        self._bound: list[str | None] = []

    def read(self, file: ParsedFile) -> None:
        """Read the whole file."""
        self._imported = file.imported
        self._tasks = set(self._names.tasks)
        self._applications = set(self._names.applications)
        for node in file.nodes:
            if isinstance(node, ast.ImportFrom) and not _is_celery(node.module):
                for each in node.names:
                    if each.asname and each.name in self._names.tasks:
                        self._tasks.add(each.asname)
                    if each.asname and each.name in self._names.applications:
                        self._applications.add(each.asname)
        self._read_settings(file.tree)
        self.visit(file.tree)

    def _add(self, node: ast.AST, what: str, kind: Kind, name: str) -> None:
        found = find_feature(kind, name)
        if found is None:
            error = refuse(kind, name)
            self._report(node, what, False, f"unknown: {error.help}")
        else:
            self._report(node, what, found.is_covered, found.text)

    def _report(self, node: ast.AST, what: str, covered: bool, instead: str) -> None:
        line: int = getattr(node, "lineno", 1)
        self.findings.append(CeleryUse(self._file, line, what, covered, instead))

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        """Look up each name that is imported from Celery, and say that its broker library is not needed."""
        if not node.level and (node.module or "").partition(".")[0] == "kombu":
            self._report(node, f"from {node.module} import …", False, _BROKER)
        if node.level or not _is_celery(node.module):
            return
        part = (node.module or "").split(".")[1:2]
        for each in node.names:
            known = find_feature("import", each.name) is not None
            name = part[0] if part and (part[0] == "signals" or not known) else each.name
            self._add(node, f"from {node.module} import {each.name}", "import", name)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        """Find tasks that are classes."""
        for base in node.bases:
            if _is_named(base, "Task", self._imported):
                self._add(node, f"class {node.name}(Task)", "import", "Task")
        self.generic_visit(node)

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
        keywords = decorator.keywords if isinstance(decorator, ast.Call) else []
        self._read_keywords(keywords, written, "task option")
        return any(each.arg == "bind" and _literal(each.value) is True for each in keywords)

    def _read_keywords(self, keywords: Sequence[ast.keyword], written: str, kind: Kind) -> None:
        for each in keywords:
            if each.arg is None:
                what = f"{written}(**{ast.unparse(each.value)})"
                self._report(each.value, what, False, _BY_HAND)
                continue
            self._read_option(each.value, f"{written}({each.arg}=…)", kind, each.arg)
            if each.arg == "retry_kwargs" and isinstance(each.value, ast.Dict):
                self._read_dict(each.value, f"{written}(retry_kwargs=…)", "retry option")

    def _read_option(self, value: ast.expr, what: str, kind: Kind, name: str) -> None:
        literal = _literal(value)
        try:
            if literal is not None:
                check_always_so(kind, {name: literal})
        except CeleryUnsupported as error:
            self._report(value, what, False, str(error.help))
            return
        self._add(value, what, kind, name)

    def _read_dict(self, node: ast.Dict, what: str, kind: Kind) -> None:
        for key, value in zip(node.keys, node.values, strict=True):
            name = _literal(key) if key is not None else None
            if not isinstance(name, str):
                self._report(value, what, False, _BY_HAND)
            elif kind == "retry option" and name == "max_retries":
                continue  # folded into the decorator's own
            else:
                self._read_option(value, f"{what}[{name!r}]", kind, name)

    def visit_Call(self, node: ast.Call) -> None:
        """Find applications, starts, canvases and settings."""
        function = node.func
        name = self._canvas_name(function)
        if name == "Celery":
            written = ast.unparse(function)
            self._report(node, f"{written}(…)", True, "the application")
            self._read_keywords(node.keywords, written, "application argument")
        elif name is not None:
            self._add(node, f"{name}(…)", "import", name)
            if name == "crontab":
                self._read_crontab(node)
        elif isinstance(function, ast.Attribute):
            self._read_method(node, function)
        self.generic_visit(node)

    def _canvas_name(self, function: ast.expr) -> str | None:
        for name in ("Celery", "crontab", "solar", *sorted(_CANVAS)):
            if _is_named(function, name, self._imported):
                return name
        return None

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
        if function.attr in ("apply_async", "set", "signature"):
            if self._is_signature(function.value):
                options = _options_of(node, function.attr)
                self._read_keywords(options, ast.unparse(function), "call option")
        elif function.attr == "send_task" and _last_name(function.value) in self._applications:
            self._read_keywords(node.keywords, ast.unparse(function), "call option")
        elif function.attr == "retry" and self._is_bound(function.value):
            self._read_keywords(node.keywords, ast.unparse(function), "retry option")
        elif function.attr == "update" and self._is_conf(function.value):
            self._read_settings_of(node)

    def _is_signature(self, node: ast.expr) -> bool:
        """Whether an expression is a task, or a signature or canvas made in place."""
        if _last_name(node) in self._tasks or self._is_bound(node):
            return True
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
        """Find what is used of applications, tasks, requests and results."""
        value = node.value
        if self._is_application(value) and node.attr != "task":
            self._add_known(node, "application attribute")
        elif self._is_bound(value) or (
            _last_name(value) in self._tasks and find_feature("task attribute", node.attr)
        ):
            self._add_known(node, "task attribute")
        elif isinstance(value, ast.Attribute) and value.attr == "request":
            if self._is_bound(value.value):
                self._add(node, ast.unparse(node), "request attribute", node.attr)
        elif isinstance(value, ast.Call) and _last_name(value.func) == "AsyncResult":
            self._add(node, ast.unparse(node), "result attribute", node.attr)
        elif isinstance(value, ast.Call) and self._is_signature(value):
            found = find_feature("signature attribute", node.attr)
            if found is not None and not found.is_covered:
                self._add(node, ast.unparse(node), "signature attribute", node.attr)
        self.generic_visit(node)

    def _add_known(self, node: ast.Attribute, kind: Kind) -> None:
        if find_feature(kind, node.attr) is not None:
            self._add(node, ast.unparse(node), kind, node.attr)

    def visit_Assign(self, node: ast.Assign) -> None:
        """Find settings of an application."""
        for target in node.targets:
            if isinstance(target, ast.Attribute) and self._is_conf(target.value):
                self._read_setting(node.value, f"conf.{target.attr}", target.attr)
            elif isinstance(target, ast.Subscript) and self._is_conf(target.value):
                name = _literal(target.slice)
                self._read_setting(node.value, f"conf[{name!r}]", str(name))
        self.generic_visit(node)

    def _read_settings_of(self, call: ast.Call) -> None:
        for each in call.keywords:
            if each.arg is not None:
                self._read_setting(each.value, f"conf.{each.arg}", each.arg)
        for argument in [*call.args, *(each.value for each in call.keywords if each.arg is None)]:
            if not isinstance(argument, ast.Dict):
                self._report(argument, "conf.update(…)", False, _BY_HAND)
                continue
            for key, value in zip(argument.keys, argument.values, strict=True):
                name = _literal(key) if key is not None else None
                self._read_setting(value, f"conf[{name!r}]", str(name))

    def _read_settings(self, tree: ast.Module) -> None:
        """Find settings that config_from_object reads from this file."""
        is_module = self._file.endswith(tuple(self._names.settings_modules))
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
                        self._read_setting(node.value, name, setting)
                if is_module and find_feature("setting", name) is not None:
                    self._read_setting(node.value, name, name)

    def _read_installed(self, node: ast.stmt) -> None:
        for each in ast.walk(node):
            app = each.value if isinstance(each, ast.Constant) else None
            instead = _APPS.get(app.partition(".")[0]) if isinstance(app, str) else None
            if instead is not None:
                self._report(each, f"INSTALLED_APPS: {app!s}", False, instead)

    def _read_setting(self, value: ast.expr, what: str, name: str) -> None:
        self._read_option(value, what, "setting", name)
        if name == "beat_schedule" and isinstance(value, ast.Dict):
            for key, entry in zip(value.keys, value.values, strict=True):
                self._read_entry(str(_literal(key) if key is not None else "…"), entry)

    def _read_entry(self, name: str, entry: ast.expr) -> None:
        what = f"beat entry {name!r}"
        if not isinstance(entry, ast.Dict):
            self._report(entry, what, False, _BY_HAND)
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


def _options_of(call: ast.Call, method: str) -> list[ast.keyword]:
    own = ("immutable",) if method in ("set", "signature") else ()
    return [each for each in call.keywords if each.arg not in own]
