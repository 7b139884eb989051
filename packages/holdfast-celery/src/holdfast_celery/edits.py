"""Makes the edits of a move that are mechanical, by position in the source: the rest stays as it was written."""

from __future__ import annotations

import ast
import difflib
import importlib
import io
import re
import subprocess
import tokenize
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from holdfast_celery.analysis import (
    MODULES,
    OURS,
    Analysis,
    CeleryUse,
    FileChanges,
    ParsedFile,
    Removal,
)
from holdfast_celery.coverage import find_feature
from holdfast_celery.errors import CeleryUnsupported, NotCommitted

_DJANGO = "holdfast_django"
_IMPORT = re.compile(r"from (holdfast_celery[\w.]*) import (\w+)")
_LINE_END = re.compile(rb"\r?\n")
_OPENING, _CLOSING = frozenset("([{"), frozenset(")]}")


@dataclass(frozen=True, slots=True)
class FileEdit:
    """One file before and after its edits."""

    file: str
    before: bytes
    after: bytes

    def diff(self) -> str:
        """Return the edits as a unified diff, which `git apply` takes."""
        lines = difflib.unified_diff(
            _lines(self.before), _lines(self.after), f"a/{self.file}", f"b/{self.file}"
        )
        return "".join(
            each if each.endswith("\n") else f"{each}\n\\ No newline at end of file\n"
            for each in lines
        )


@dataclass(frozen=True, slots=True)
class ProjectEdits:
    """The edits of a project, and the places that keep files from being edited."""

    files: tuple[FileEdit, ...]
    untouched: tuple[CeleryUse, ...]
    warnings: tuple[str, ...] = ()

    def diff(self) -> str:
        """Return all edits as a unified diff."""
        return "".join(each.diff() for each in self.files)

    def write(self, project: Path) -> None:
        """Write the files."""
        for each in self.files:
            path_of(project, each.file).write_bytes(each.after)


class NotMechanical(Exception):
    """An edit that would need a decision; its file is left alone."""


def check_committed(project: Path) -> None:
    """Refuse to edit what version control could not show or take back. Raises: NotCommitted."""
    folder = project if project.is_dir() else project.parent
    try:
        said = subprocess.run(
            # Only Python files are edited: a diff that was kept beside them is in nobody's way.
            ["git", "status", "--porcelain", "--untracked-files=all", "--", "*.py"],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
    except FileNotFoundError:
        raise NotCommitted("git is not installed") from None
    if said.returncode:
        raise NotCommitted(f"{project} is not in a git repository")
    changed = said.stdout.splitlines()
    if changed:
        raise NotCommitted(
            f"{project} has changes that are not committed",
            details=[each[3:] for each in changed[:5]],
        )


def plan_edits(project: Path, found: Analysis) -> ProjectEdits:
    """Return the edits that can be made without knowing what the project is for. It writes nothing."""
    made: list[FileEdit] = []
    untouched: list[CeleryUse] = []
    django = DjangoProject(found.parsed, found.names)
    # The application's file comes first: settings that name one which has not moved would be wrong.
    for file, parsed in sorted(found.parsed.items(), key=lambda each: each[0] != django.home):
        changes = parsed.changes
        if changes.doubts:
            untouched += changes.doubts if changes else []
            continue
        if not (changes or file == django.settings):
            continue
        before = path_of(project, file).read_bytes()
        try:
            after = FileEditor(file, before, parsed, django).edit()
        except NotMechanical as error:
            untouched.append(CeleryUse(file, 1, "a file that is left as it is", False, str(error)))
            if file == django.home:
                django.home = django.settings = None
            continue
        if after != before:
            made.append(FileEdit(file, before, after))
    made.sort(key=lambda each: each.file)
    return ProjectEdits(tuple(made), tuple(sorted(untouched)), tuple(django.warnings()))


def path_of(project: Path, file: str) -> Path:
    """Return where a file of an analysis is."""
    return project if project.is_file() else project / file


class DjangoProject:
    """What of a project is Django's: the file of its applications, and its settings."""

    def __init__(self, parsed: Mapping[str, ParsedFile], files: Iterable[str]) -> None:
        self._parsed = parsed
        self._files = files
        homes = [file for file, each in parsed.items() if _reads_django_settings(each.changes)]
        self.home = homes[0] if len(homes) == 1 else None
        """The one file that has the application, None for a project that is not Django's or has several."""
        lists = [file for file, each in parsed.items() if each.changes.installed_apps]
        self.settings = lists[0] if self.home and len(lists) == 1 else None

    def warnings(self) -> Iterator[str]:
        """Say what to add to the settings by hand, where it is not known which file has them."""
        if self.home is None:
            return
        name = self.application_name()
        if self.settings is None:
            yield (
                f"add {_DJANGO!r} to INSTALLED_APPS, and HOLDFAST_APP = {name!r} to the settings: "
                "not one file here has the list of installed apps, but none or several"
            )
        elif name is None and not _is_installed(self._parsed[self.settings]):
            target = _application_target(self._parsed[self.home])
            yield (
                f"add {_DJANGO!r} to INSTALLED_APPS, and HOLDFAST_APP, the dotted name of {target} in {self.home}, "
                "to the settings: that file does not say which module they are"
            )

    def application_name(self) -> str | None:
        """Return the dotted name of the application, by the settings module that its file names."""
        if self.home is None:
            return None
        home = self._parsed[self.home]
        for module in _settings_modules(home.nodes):
            path = module.replace(".", "/")
            for file in self._files:
                for tail in (f"{path}.py", f"{path}/__init__.py"):
                    root = file.removesuffix(tail)
                    if (
                        root != file
                        and self.home.startswith(root)
                        and (not root or root.endswith("/"))
                    ):
                        name = self.home.removeprefix(root).removesuffix(".py").replace("/", ".")
                        return f"{name}.{_application_target(home)}"
        return None


def _is_installed(settings: ParsedFile) -> bool:
    return any(isinstance(each, ast.Constant) and each.value == _DJANGO for each in settings.nodes)


def _reads_django_settings(changes: FileChanges) -> bool:
    return (
        bool(changes.applications)
        and not changes.doubts
        and any(
            call.args
            and isinstance(call.args[0], ast.Constant)
            and call.args[0].value == "django.conf:settings"
            for call in changes.settings_calls
        )
    )


def _settings_modules(nodes: Iterable[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Call) and len(node.args) == 2:
            name, module = (
                each.value if isinstance(each, ast.Constant) else None for each in node.args
            )
            if name == "DJANGO_SETTINGS_MODULE" and isinstance(module, str):
                yield module


def _application_target(home: ParsedFile) -> str:
    for node in home.nodes:
        if isinstance(node, ast.Assign) and node.value in home.changes.applications:
            target = node.targets[0]
            if isinstance(target, ast.Name):
                return target.id
    return "app"


@dataclass(frozen=True, slots=True)
class Replacement:
    """Bytes of a file and what takes their place."""

    start: int
    end: int
    text: bytes = b""


@dataclass(frozen=True, slots=True)
class Item:
    """An argument or an entry between brackets, and the end of the comma behind it if there is one."""

    start: int
    end: int
    comma: int | None


class FileEditor:
    """Edits one file, whose tree is known."""

    def __init__(self, file: str, source: bytes, parsed: ParsedFile, django: DjangoProject) -> None:
        self._file = file
        self._source = source
        self._parsed = parsed
        self._changes = parsed.changes
        self._django = django
        self._starts = [0, *(each.end() for each in _LINE_END.finditer(source))]
        self._tokens = list(_tokens(source))
        self._newline = "\r\n" if b"\r\n" in source else "\n"
        self._quote = '"' if source.count(b'"') >= source.count(b"'") else "'"

    def edit(self) -> bytes:
        """Return the file with its edits. Raises: NotMechanical."""
        edits = sorted(set(self._replacements()), key=lambda each: (each.start, each.end))
        after, at = b"", 0
        for each in edits:
            if each.start < at:
                raise NotMechanical("two edits meet in one place")
            after += self._source[at : each.start] + each.text
            at = each.end
        after += self._source[at:]
        try:
            ast.parse(after)
        except (SyntaxError, ValueError) as error:
            raise NotMechanical(f"it cannot be read after its edits: {error}") from None
        return after

    def _replacements(self) -> Iterator[Replacement]:
        for each in self._changes.imports:
            yield from self._move_import(each)
        containers = {id(each.container): each.container for each in self._changes.removals}
        additions = {id(call): call for call in self._additions()}
        for key, container in (containers | additions).items():
            gone = [each for each in self._changes.removals if id(each.container) == key]
            yield from self._edit_items(container, gone, key in additions)
        for statement in self._changes.statements:
            yield from self._without_statement(statement)
        for text, name in self._changes.patched:
            yield self._rename_text(text, name)
        if self._file == self._django.settings:
            yield from self._install()

    def _additions(self) -> Iterator[ast.Call]:
        """Return the calls that are given the database of Django."""
        if self._file == self._django.home:
            for call in self._changes.applications:
                if all(each.arg != "url" for each in call.keywords):
                    yield call

    def _quote_text(self, text: str) -> str:
        return f"{self._quote}{text}{self._quote}"

    def _offset(self, line: int, column: int) -> int:
        return self._starts[line - 1] + column

    def _span(self, node: ast.AST) -> tuple[int, int]:
        assert isinstance(node, ast.expr | ast.stmt | ast.alias | ast.keyword)
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        start = self._offset(node.lineno, node.col_offset)
        return start, self._offset(node.end_lineno, node.end_col_offset)

    def _move_import(self, node: ast.ImportFrom | ast.alias) -> Iterator[Replacement]:
        start, end = self._span(node)
        if isinstance(node, ast.alias):
            yield from self._move_package(node, start)
            return
        assert node.module is not None
        homes: dict[str, list[ast.alias]] = {}
        for each in node.names:
            home = _new_home(node.module, each.name) or node.module
            homes.setdefault(home, []).append(each)
        if len(homes) == 1:
            yield from self._rename_module(start, end, node.module, next(iter(homes)))
        elif node.lineno == node.end_lineno:
            lines = [
                f"from {home} import {', '.join(map(ast.unparse, names))}"
                for home, names in sorted(homes.items(), key=lambda each: each[0] == node.module)
            ]
            between = f"{self._newline}{self._indent(start)}"
            yield Replacement(start, end, between.join(lines).encode())
        else:
            raise NotMechanical(f"line {node.lineno} imports what is covered with what is not")
        if self._file == self._django.home and any(each.name == "Celery" for each in node.names):
            line = f"{self._newline}{self._indent(start)}from {_DJANGO} import database_url"
            if f"from {_DJANGO} import".encode() not in self._source:
                stop = self._line_end(end)
                yield Replacement(stop, stop, line.encode())

    def _move_package(self, node: ast.alias, start: int) -> Iterator[Replacement]:
        """Rename `import celery` or `import celery.result`, and the package wherever the file uses it.

        Modules that are used without an import of their own get one: Celery's package imports its modules at their
        first use, and ours does not.
        """
        name = node.asname or "celery"
        uses = [
            each
            for each in self._changes.attributes
            if isinstance(each.value, ast.Name) and each.value.id == name
        ]
        modules = sorted({each.attr for each in uses if each.attr in MODULES})
        needs_modules = bool(modules) and node.name == "celery"
        if needs_modules and node.asname is not None:
            raise NotMechanical(f"{name}.{modules[0]} has to be imported by its own name")
        text = ", ".join(f"{OURS}.{each}" for each in modules) if needs_modules else OURS
        yield Replacement(start, start + len("celery"), text.encode())
        for used in uses:
            if used.attr not in MODULES and _new_home("celery", used.attr) != OURS:
                raise NotMechanical(f"{OURS} has no {used.attr}, which line {used.lineno} uses")
            at, end = self._span(used.value)
            if node.asname is None and self._source[at:end] == b"celery":
                yield Replacement(at, end, OURS.encode())

    def _rename_module(self, start: int, end: int, old: str, new: str) -> Iterator[Replacement]:
        if old == new:
            return
        found = re.match(rb"from\s+(" + re.escape(old.encode()) + rb")\b", self._source[start:end])
        if found is None:
            raise NotMechanical(f"the import of {old} is not written in one piece")
        yield Replacement(start + found.start(1), start + found.end(1), new.encode())

    def _line_start(self, at: int) -> int:
        return max(each for each in self._starts if each <= at)

    def _line_end(self, at: int) -> int:
        """Return the end of a place's line, before its line break."""
        found = _LINE_END.search(self._source, at)
        return found.start() if found else len(self._source)

    def _indent(self, at: int) -> str:
        before = self._source[self._line_start(at) : at].decode()
        return before if before.isspace() or not before else ""

    def _items(self, container: ast.expr) -> tuple[int, list[Item]]:
        """Return where the brackets of a call or display open, and what is between them."""
        start, end = self._span(container)
        if isinstance(container, ast.Call):
            start = self._span(container.func)[1]
        inside = [each for each in self._tokens if start <= each.start < end and not each.is_blank]
        while inside and inside[0].text not in _OPENING:
            inside.pop(0)
        items: list[Item] = []
        depth, first, last = 0, None, None
        for each in inside[1:-1]:
            if each.text == "," and depth == 0 and first is not None and last is not None:
                items.append(Item(first, last, each.end))
                first = last = None
                continue
            depth += (each.text in _OPENING) - (each.text in _CLOSING)
            first, last = each.start if first is None else first, each.end
        if first is not None and last is not None:
            items.append(Item(first, last, None))
        return inside[0].end, items

    def _edit_items(
        self, container: ast.expr, removals: Sequence[Removal], takes_url: bool
    ) -> Iterator[Replacement]:
        opening, items = self._items(container)
        gone = {self._index(items, each.item) for each in removals}
        kept = [each for index, each in enumerate(items) if index not in gone]
        if takes_url:
            yield self._insertion(opening, kept[-1] if kept else None, "url=database_url")
        index = 0
        while index < len(items):
            last = index
            while {last, last + 1} <= gone and self._share_line(items[last], items[last + 1]):
                last += 1
            if index in gone:
                yield self._without(items, index, last)
            index = last + 1

    def _share_line(self, one: Item, next_one: Item) -> bool:
        return _LINE_END.search(self._source, one.end, next_one.start) is None

    def _index(self, items: Sequence[Item], node: ast.AST) -> int:
        start, _ = self._span(node)
        for index, each in enumerate(items):
            if each.start <= start < each.end:
                return index
        raise NotMechanical("an argument is not where the syntax tree has it")

    def _insertion(self, opening: int, last: Item | None, text: str) -> Replacement:
        if last is None:
            return Replacement(opening, opening, text.encode())
        begins_line = not self._source[self._line_start(last.start) : last.start].strip()
        between = f",{self._newline}{self._indent(last.start)}" if begins_line else ", "
        return Replacement(last.end, last.end, f"{between}{text}".encode())

    def _without(self, items: Sequence[Item], first: int, last: int) -> Replacement:
        """Take out neighbours on a line: with the line if it holds nothing else, else with one comma."""
        start, end = items[first].start, items[last].comma or items[last].end
        if self._is_alone(start, end):
            return Replacement(self._line_start(start), self._behind_line(self._line_end(end)))
        if last + 1 < len(items):
            if self._share_line(items[last], items[last + 1]):
                return Replacement(start, items[last + 1].start)
            before = self._source[:start]
            return Replacement(len(before.rstrip(b" \t")), end)
        if first > 0 and self._share_line(items[first - 1], items[first]):
            return Replacement(items[first - 1].end, items[last].end)
        return Replacement(start, end)

    def _is_alone(self, start: int, end: int) -> bool:
        """Whether a place has its lines for itself, but for a comment behind it."""
        rest = self._source[end : self._line_end(end)].strip()
        is_first = not self._source[self._line_start(start) : start].strip()
        return is_first and (not rest or rest.startswith(b"#"))

    def _behind_line(self, at: int) -> int:
        found = _LINE_END.match(self._source, at)
        return found.end() if found else at

    def _rename_text(self, text: ast.Constant, name: str) -> Replacement:
        """Name a class of ours in a text that names one of Celery's."""
        start, end = self._span(text)
        written = self._source[start:end]
        if written[1:-1] != str(text.value).encode():
            raise NotMechanical(f"the text in line {text.lineno} is not written in one piece")
        return Replacement(start + 1, end - 1, name.encode())

    def _without_statement(self, statement: ast.stmt) -> Iterator[Replacement]:
        """Take out a statement, unless its block or its line would be left with nothing or with half of another."""
        start, end = self._span(statement)
        blocks = [
            block
            for node in self._parsed.nodes
            for name in ("body", "orelse", "finalbody")
            if isinstance(block := getattr(node, name, None), list) and statement in block
        ]
        if self._is_alone(start, end) and blocks and len(blocks[0]) > 1:
            yield Replacement(self._line_start(start), self._behind_line(self._line_end(end)))

    def _install(self) -> Iterator[Replacement]:
        """Name Holdfast's application of Django, and ours, in the settings."""
        name = self._django.application_name()
        (apps,) = self._changes.installed_apps[:1]
        if name is None or _DJANGO.encode() in self._source or b"HOLDFAST_APP" in self._source:
            return
        statement = next(
            each
            for each in self._parsed.nodes
            if isinstance(each, ast.Assign | ast.AnnAssign) and each.value is apps
        )
        opening, items = self._items(apps)
        text = self._quote_text(_DJANGO)
        if not items:
            yield Replacement(opening, opening, f"{text},".encode())
        else:
            first = items[0]
            begins_line = not self._source[self._line_start(first.start) : first.start].strip()
            between = f",{self._newline}{self._indent(first.start)}" if begins_line else ", "
            yield Replacement(first.start, first.start, f"{text}{between}".encode())
        stop = self._line_end(self._span(statement)[1])
        line = f"{self._newline}{self._indent(self._span(statement)[0])}HOLDFAST_APP = {self._quote_text(name)}"
        yield Replacement(stop, stop, line.encode())


def _new_home(module: str, name: str) -> str | None:
    """Return the module of ours that has a name of Celery's, None if none has: the same, or where the table says."""
    found = find_feature("import", name)
    if found is not None and not found.is_covered:
        return None
    same = OURS + module.removeprefix("celery")
    if same == OURS and name in MODULES:
        return same
    try:
        if hasattr(importlib.import_module(same), name):
            return same
    except (ImportError, CeleryUnsupported):
        pass
    said = _IMPORT.fullmatch(found.text) if found is not None else None
    return said[1] if said is not None and said[2] == name else None


@dataclass(frozen=True, slots=True)
class _Token:
    start: int
    end: int
    text: str
    is_blank: bool


_BLANK = {tokenize.NL, tokenize.NEWLINE, tokenize.COMMENT, tokenize.INDENT, tokenize.DEDENT}


def _tokens(source: bytes) -> Iterator[_Token]:
    """Return the tokens of a file by their bytes. Raises: NotMechanical."""
    if b"\r" in source.replace(b"\r\n", b""):
        raise NotMechanical("its lines end in several ways")
    starts = [0, *(each.end() for each in _LINE_END.finditer(source))]

    def offset(line: int, column: int) -> int:
        text = lines[line - 1]
        return starts[line - 1] + (column if text.isascii() else len(text[:column].encode()))

    try:
        lines = source.decode("utf-8").split("\n")
        for each in tokenize.tokenize(io.BytesIO(source).readline):
            if each.type in (tokenize.ENCODING, tokenize.ENDMARKER):
                if each.type == tokenize.ENCODING and each.string != "utf-8":
                    raise NotMechanical(f"it is written in {each.string}")
                continue
            start, end = offset(*each.start), offset(*each.end)
            yield _Token(start, end, each.string, each.type in _BLANK)
    except (UnicodeDecodeError, SyntaxError, tokenize.TokenError) as error:
        raise NotMechanical(str(error)) from None


def _lines(source: bytes) -> list[str]:
    return list(io.StringIO(source.decode("utf-8"), newline=""))
