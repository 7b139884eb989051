"""The linter of style sheets finds what it says it finds."""

from pathlib import Path

import pytest

from tests.support.lint_styles import findings

SOUND = """
:root { --ink: #111; }
.card, .heat-1 { color: var(--ink); }
@media (max-width: 40rem) { .card { color: red; } }
"""


@pytest.mark.parametrize(
    ("style", "found"),
    [
        (SOUND, []),
        (
            SOUND + ".card { color red; }",
            ["a.css:5: Stop token reached before {} block for a qualified rule."],
        ),
        (SOUND + ".card { color: var(--inc); }", ["a.css:5: --inc is not defined"]),
        (SOUND + ":root { --old: 1; }", ["a.css:5: --old is not used"]),
        (SOUND + ".card { top: 0; left: 0; top: 1px; }", ["a.css:5: top is set twice"]),
        (SOUND + "@media print { .gone { top: 0; } }", ["a.css:5: nothing has the class gone"]),
    ],
)
def test_a_style_sheet_is_linted(tmp_path: Path, style: str, found: list[str]) -> None:
    (tmp_path / "a.css").write_text(style)
    (tmp_path / "page.html").write_text('<p class="card heat-{{ level }}">')
    assert list(findings(tmp_path, tmp_path)) == found
