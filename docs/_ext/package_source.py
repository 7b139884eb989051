"""Where the pages install the package from. They are written for a checkout beside the reader's project.

Once the package is on PyPI, `package_is_published = True` in conf.py makes every page install it from there.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sphinx.application import Sphinx

_PUBLISHED = (
    (re.compile(r'"\.\./holdfast(\[[\w,]+\])"'), r'"holdfast-jobs\1"'),
    (re.compile(r"\.\./holdfast/packages/(?=holdfast-)"), ""),
    (re.compile(r" *# \.\./holdfast: your checkout$", re.MULTILINE), ""),
    (
        re.compile(r"Holdfast is not on PyPI yet:.+?\.(?=\s)", re.DOTALL),
        "The PyPI package is `holdfast-jobs` (`holdfast` is an unrelated project);"
        " you import and run it as `holdfast`.",
    ),
)


def install_from_pypi(text: str) -> str:
    """Return a page's text with the commands and the sentence that apply once the package is published."""
    for pattern, words in _PUBLISHED:
        text = pattern.sub(words, text)
    return text


def _read(app: Sphinx, _: str, source: list[str]) -> None:
    if app.config.package_is_published:
        source[0] = install_from_pypi(source[0])


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""
    app.add_config_value("package_is_published", False, "env", bool)
    app.connect("source-read", _read)
    return {"parallel_read_safe": True}
