"""Data is written in the form that was asked for, and cannot harm a terminal."""

import json
import sys

import pytest

from holdfast.cli.output import (
    Column,
    Format,
    clean,
    display_width,
    truncate,
    write_records,
    write_single,
)

RECORDS = [{"id": "1", "text": "one"}, {"id": "2", "text": "zwölf"}]
COLUMNS = (Column("id", lambda row: row["id"]), Column("text", lambda row: row["text"]))


def written(output: Format, capsys: pytest.CaptureFixture[str]) -> str:
    write_records(RECORDS, COLUMNS, output)
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out


def test_a_table_has_titles_and_aligned_columns(capsys: pytest.CaptureFixture[str]) -> None:
    assert written("table", capsys) == "ID  TEXT\n1   one\n2   zwölf\n"


def test_a_table_fits_a_terminal_and_is_whole_in_a_pipe(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    record = {"id": "0193a6f0-7c00-7000-8000-00000000beef", "text": "long" * 50}
    write_records([record], COLUMNS, "table")
    assert "long" * 50 in capsys.readouterr().out
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    for columns in (40, 60, 240):
        monkeypatch.setenv("COLUMNS", str(columns))
        write_records([record], COLUMNS, "table")
        shown = capsys.readouterr().out.splitlines()
        assert max(map(len, shown)) <= columns
        assert shown[1].startswith("…0000beef  longlong" if columns < 240 else record["id"])


def test_json_is_one_document(capsys: pytest.CaptureFixture[str]) -> None:
    assert json.loads(written("json", capsys)) == RECORDS
    write_single(RECORDS[0], "json", lambda: None)
    assert json.loads(capsys.readouterr().out) == RECORDS[0]


def test_ndjson_is_one_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    assert [json.loads(line) for line in written("ndjson", capsys).splitlines()] == RECORDS


def test_ids_stand_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert written("id", capsys) == "1\n2\n"


def test_an_empty_table_is_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    write_records([], COLUMNS, "table")
    assert capsys.readouterr().out == ""


def test_a_cell_cannot_move_the_cursor_or_end_the_line() -> None:
    assert clean("a\x1b[2Jb\nc\u202ed") == "a [2Jb c d"
    assert clean(None) == "-"
    assert clean("") == "-"


def test_wide_characters_take_two_columns() -> None:
    assert display_width("ab") == 2
    assert display_width("日本") == 4
    assert truncate("日本語", 5) == "日本…"
    assert truncate("short", 5) == "short"
    assert truncate("longer", 5) == "long…"
