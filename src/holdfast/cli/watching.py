"""Which source files changed, found by looking: nothing to install, and the same on every platform."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

_SKIPPED = frozenset({"__pycache__", "node_modules", "venv", "site-packages"})
_SUFFIX = ".py"


class SourceWatch:
    """Remembers when each source file below a folder was last changed."""

    def __init__(self, root: Path) -> None:
        """Look for the first time."""
        self._root = root
        self._seen = dict(_stamps(root))

    def changed(self) -> Path | None:
        """Return a file that was changed, added or removed since the last look, None when there is none."""
        before, self._seen = self._seen, dict(_stamps(self._root))
        for path in sorted(before.keys() | self._seen.keys()):
            if before.get(path) != self._seen.get(path):
                return path.relative_to(self._root)
        return None


def _stamps(root: Path) -> Iterator[tuple[Path, tuple[int, int]]]:
    for folder, folders, files in os.walk(root):
        folders[:] = [each for each in folders if each not in _SKIPPED and each[0] != "."]
        for name in files:
            if name.endswith(_SUFFIX):
                path = Path(folder, name)
                try:
                    stat = path.stat()
                except FileNotFoundError:
                    continue
                yield path, (stat.st_mtime_ns, stat.st_size)
