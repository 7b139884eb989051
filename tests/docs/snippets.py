"""The Python blocks of a page, in order."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def python_blocks(page: str) -> list[str]:
    """Return the blocks of a page below the project's root."""
    return _BLOCK.findall((ROOT / page).read_text(encoding="utf-8"))
