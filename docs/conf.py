"""How Sphinx builds this documentation: `make docs`, warnings as errors."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from holdfast.version import VERSION

project = "Holdfast"
author = "the Holdfast authors"
project_copyright = author
version = release = VERSION

extensions = [
    "myst_parser",
    "docs._ext.package_source",
    "docs._ext.reference",
    "docs._ext.search_words",
]
package_is_published = False
exclude_patterns = ["_build", "_ext", "adr/README.md"]
nitpicky = True
# Annotations name the standard library and internals; neither has a page here.
nitpick_ignore_regex = [("py:.*", ".*")]

myst_enable_extensions = ["attrs_inline", "deflist"]
myst_heading_anchors = 3
suppress_warnings = ["myst.header"]

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_class_signature = "mixed"
autoclass_content = "both"

# The dashboard's own, so that there is one logo.
_ICON = "../packages/holdfast-dashboard/src/holdfast_dashboard/static/icon.svg"

html_theme = "furo"
html_title = f"Holdfast {VERSION}"
html_static_path = ["_static"]
html_favicon = _ICON
html_search_scorer = str(Path(__file__).parent / "_ext" / "search_scorer.js")
html_css_files = ["copy.css"]
html_js_files = [("copy.js", {"defer": "defer"})]
html_show_sourcelink = False
html_copy_source = False
pygments_style = "friendly"
pygments_dark_style = "native"
