"""The blocks of code on a page, in order."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"(?:#|//) ([\w/.-]+\.\w+)\n")


@dataclass(frozen=True, slots=True)
class Block:
    """One block: its language and its text. A first line like `# shop/app.py` or `// shop/page.typ` names its file."""

    language: str
    text: str

    @property
    def file(self) -> str | None:
        """The file that the block says it is."""
        match = _FILE.match(self.text)
        return match[1] if match else None


def blocks(page: str) -> list[Block]:
    """Return the blocks of a page below the project's root."""
    return text_blocks((ROOT / page).read_text(encoding="utf-8"))


def text_blocks(text: str) -> list[Block]:
    """Return the blocks of a text."""
    return [Block(language, body) for language, body in _BLOCK.findall(text)]


def python_blocks(page: str) -> list[str]:
    """Return the Python of a page below the project's root."""
    return [each.text for each in blocks(page) if each.language == "python"]


def written_pages() -> list[str]:
    """Return the pages that people wrote: neither decisions nor what is generated."""
    found = sorted(path.relative_to(ROOT).as_posix() for path in DOCS.rglob("*.md"))
    return [page for page in found if not page.startswith(("docs/adr/", "docs/_build/"))]
