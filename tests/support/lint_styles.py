"""Lints style sheets: python -m tests.support.lint_styles DIRECTORY=FOLDER…, where FOLDER has what uses the styles.

It finds what does not parse, variables that are not defined or not used, a property that is set twice in one rule, and
classes that nothing has. Whether a browser knows each property is tested in tests/e2e.
"""

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import tinycss2

USERS = (".html", ".js", ".py", ".md")


class Rule(NamedTuple):
    """A rule with declarations: where it is, what it applies to, and what it says."""

    place: str
    selector: str
    declarations: Sequence[Any]


def findings(styles: Path, users: Path) -> Iterator[str]:
    """Tell what is wrong with the style sheets of a directory."""
    nodes = [(file.name, node) for file in sorted(styles.glob("*.css")) for node in parsed(file)]
    for name, node in nodes:
        if node.type == "error":
            yield f"{name}:{node.source_line}: {node.message}"
    rules = [rule for name, node in nodes for rule in rules_of(name, node)]
    yield from _variables(rules)
    texts = [each.read_text() for each in users.rglob("*") if each.suffix in USERS]
    yield from _rules(rules, set(re.findall(r"[\w-]+", " ".join(texts))))


def parsed(file: Path) -> Any:
    """The nodes of a style sheet, errors among them."""
    return tinycss2.parse_stylesheet(file.read_text(), skip_comments=True, skip_whitespace=True)


def rules_of(name: str, node: Any) -> Iterator[Rule]:
    """The rules in a node, those within a media query included."""
    if node.type == "qualified-rule":
        found = tinycss2.parse_blocks_contents(
            node.content, skip_comments=True, skip_whitespace=True
        )
        yield Rule(f"{name}:{node.source_line}", tinycss2.serialize(node.prelude).strip(), found)
    elif node.type == "at-rule" and node.content is not None:
        for each in tinycss2.parse_rule_list(
            node.content, skip_comments=True, skip_whitespace=True
        ):
            yield from rules_of(name, each)


def _variables(rules: Iterable[Rule]) -> Iterator[str]:
    defined, used = dict[str, str](), dict[str, str]()
    for rule in rules:
        for each in rule.declarations:
            if each.type != "declaration":
                continue
            if each.name.startswith("--"):
                defined.setdefault(each.name, rule.place)
            for name in re.findall(r"var\((--[\w-]+)", tinycss2.serialize(each.value)):
                used.setdefault(name, rule.place)
    for name in sorted(used.keys() - defined.keys()):
        yield f"{used[name]}: {name} is not defined"
    for name in sorted(defined.keys() - used.keys()):
        yield f"{defined[name]}: {name} is not used"


def _rules(rules: Iterable[Rule], words: set[str]) -> Iterator[str]:
    for rule in rules:
        names = [each.name for each in rule.declarations if each.type == "declaration"]
        for each in rule.declarations:
            if each.type == "error":
                yield f"{rule.place}: {each.message}"
        for name in sorted({each for each in names if names.count(each) > 1}):
            yield f"{rule.place}: {name} is set twice"
        for name in re.findall(r"\.([A-Za-z][\w-]*)", rule.selector):
            # Of a class with a number, the script or template has the words before it.
            if name not in words and name.rstrip("0123456789") not in words:
                yield f"{rule.place}: nothing has the class {name}"


def main(pairs: Sequence[str]) -> int:
    """Lint each directory; the status is 1 if anything was found."""
    found = []
    for pair in pairs:
        styles, _, users = pair.partition("=")
        found += [f"{styles}/{each}" for each in findings(Path(styles), Path(users))]
    print("\n".join(found) or f"Style sheets: {len(pairs)} folders, no findings.")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
