"""What all commands share: help, wrong input, exit codes, and data apart from talk."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import holdfast.cli
from holdfast.cli.exit_codes import Exit
from holdfast.cli.lazy import HelpCommand, HelpGroup
from holdfast.cli.main import SYNONYMS, cli
from holdfast.core.errors import ConfigError, HeartbeatTooSlow, HoldfastError, KeyConflict
from tests.cli.conftest import Run
from tests.cli.scene import Scene
from tests.support.absent import skip_because_absent
from tests.support.until import PATIENCE_S

HELP_SECONDS = 0.150
# Of the processor, whatever else the machine does; a slower one takes longer.
MARGIN = 2
PLACEHOLDER = "placeholder"
HEAVY = ("asyncio", "msgspec", "psycopg", "rich", "sqlite3", "subprocess", "textual")


def commands(
    group: click.Group = cli, path: tuple[str, ...] = ("holdfast",)
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Go through every command with its path."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield (*path, name), command
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))


EVERY = [pytest.param(path, command, id=" ".join(path)) for path, command in commands()]


@pytest.mark.parametrize(("path", "command"), EVERY)
def test_help_begins_with_examples(path: tuple[str, ...], command: click.Command, run: Run) -> None:
    result = run(*path[1:], "--help")
    assert result.exit_code == 0
    assert result.stdout.startswith("Examples:\n  ")
    assert f"Usage: {' '.join(path)}" in result.stdout


@pytest.mark.parametrize(("path", "command"), EVERY)
def test_every_example_can_be_typed(path: tuple[str, ...], command: click.Command) -> None:
    assert isinstance(command, HelpCommand | HelpGroup)
    assert command.examples
    for line in command.examples:
        for words in _command_lines(line):
            _parse(words)


def _command_lines(line: str) -> Iterator[list[str]]:
    """Find the calls of holdfast in a shell line; what another call would put in is a placeholder."""
    inner = re.compile(r"\$\((holdfast [^)]*)\)")
    for call in inner.findall(line):
        yield shlex.split(call)[1:]
    words = shlex.split(inner.sub(PLACEHOLDER, line), comments=True)
    for start, word in enumerate(words):
        if word == "holdfast":
            given = [PLACEHOLDER] if words[start - 1] == "xargs" else []
            rest = words[start + 1 :]
            ends = [place for place, each in enumerate(rest) if each in {"||", "&&", "|", ">", "<"}]
            yield [*rest[: min(ends, default=len(rest))], *given]


def _parse(words: list[str]) -> None:
    command: click.Command = cli
    while isinstance(command, click.Group) and words:
        _, found, words = command.resolve_command(click.Context(command), words)
        assert found is not None
        command = found
    command.make_context(command.name, list(words))


def test_the_list_of_commands_says_what_each_says_of_itself() -> None:
    context = click.Context(cli)
    for name, entry in cli.entries.items():
        command = cli.get_command(context, name)
        assert command is not None
        assert (command.help or "").split("\n\n")[0].replace("\n", " ").strip() == entry.text


def test_no_summary_is_cut(run: Run) -> None:
    groups = [path for path, command in commands() if isinstance(command, click.Group)]
    shown = [run(*path[1:], "--help").stdout.partition("Commands:")[2] for path in groups]
    assert all(shown)
    assert not [each for each in shown if "...\n" in each]


def test_no_help_imports_anything_slow() -> None:
    script = (
        "import sys\n"
        "from holdfast.cli.main import cli\n"
        "for words in sys.argv[1:]:\n"
        "    try: cli([*words.split(), '--help'])\n"
        "    except SystemExit: pass\n"
        "print(*sys.modules, file=sys.stderr)"
    )
    lines = ["", *(" ".join(path[1:]) for path, _ in commands())]
    done = subprocess.run(
        [sys.executable, "-c", script, *lines], capture_output=True, text=True, check=True
    )
    assert done.stdout.count("Usage: ") == len(lines)
    assert not set(HEAVY) & set(done.stderr.split())


def test_help_answers_at_once() -> None:
    def seconds() -> float:
        before = os.times()
        subprocess.run(
            [sys.executable, "-m", "holdfast", "--help"], check=True, stdout=subprocess.DEVNULL
        )
        after = os.times()
        return sum(after[2:4]) - sum(before[2:4])

    assert min(seconds() for _ in range(5)) < HELP_SECONDS * MARGIN


@pytest.mark.parametrize(
    ("line", "complaint", "help"),
    [
        ("stats", "holdfast has no command 'stats'", "help: "),
        pytest.param(
            f"explain {'9' * 5_000}",
            "is neither an error code nor a term",
            "see",
            id="a long number",
        ),
        ("retry", "holdfast has no command 'retry'", "did you mean `holdfast jobs retry`?"),
        ("why 7", "holdfast has no command 'why'", "did you mean `holdfast jobs show`?"),
        ("cron", "holdfast has no command 'cron'", "did you mean `holdfast cycles`?"),
        ("queue", "holdfast has no command 'queue'", "did you mean `holdfast types`?"),
        ("beat", "holdfast has no command 'beat'", "did you mean `holdfast cycles`?"),
        ("purge", "holdfast has no command 'purge'", "did you mean `holdfast chains delete`?"),
        ("explain lese", "is neither an error code nor a term", "did you mean lease?"),
        ("explain HF01", "is neither an error code nor a term", "did you mean HF"),
        ("expain HF017", "holdfast has no command 'expain'", "did you mean explain?"),
        ("help", "holdfast has no command 'help'", "did you mean --help?"),
        ("explain --outptu json", "no such option '--outptu'", "did you mean --output?"),
        ("jobs why 7", "holdfast jobs has no command 'why'", "did you mean show?"),
        ("jobs list --state failed", "no such option '--state'", "as in state:failed"),
        ("jobs list --sate failed", "no such option '--sate'", "as in state:failed"),
        ("dead list --type mail", "no such option '--type'", "as in type:mail.*"),
        ("jobs list --limti 3", "no such option '--limti'", "did you mean --limit?"),
        ("explain -o xml", "'xml' is not one of 'table', 'json'", "holdfast explain --help"),
        ("completion", "missing argument", "holdfast completion --help"),
        ("completion tcsh", "'tcsh' is not one of", "holdfast completion --help"),
        (
            "reap --poison-limit many",
            "'many' is not a whole number from 1 to 1000",
            "holdfast reap --help",
        ),
        ("reap --poison-limit", "requires an argument", "holdfast reap --help"),
        ("explain HF017 HF018", "unexpected extra argument", "holdfast explain --help"),
        ("reap --wrong", "no such option '--wrong'", "see `holdfast reap --help`"),
        (
            "worker shop:app --url sqlite:///a.db",
            "no such option '--url'",
            "that of Holdfast(url), or HOLDFAST_URL for Holdfast()",
        ),
        ("--verion", "no such option '--verion'", "did you mean --version?"),
    ],
)
def test_a_wrong_command_line_says_what_is_wrong_and_how_to_go_on(
    line: str, complaint: str, help: str, run: Run
) -> None:
    result = run(*shlex.split(line))
    assert result.exit_code == Exit.USAGE
    assert result.stdout == ""
    assert result.stderr.startswith("error[HF091]: ")
    assert complaint in result.stderr
    assert help in result.stderr


def test_a_noun_alone_is_answered_with_its_help_on_stderr(run: Run) -> None:
    result = run()
    assert result.exit_code == Exit.USAGE
    assert result.stdout == ""
    assert result.stderr.startswith("Examples:")


def test_the_nearest_class_decides_the_exit_code() -> None:
    assert HeartbeatTooSlow.exit_code == ConfigError.exit_code == Exit.USAGE
    assert KeyConflict.exit_code == Exit.FAILED


def test_an_error_is_shown_as_it_renders_itself(run: Run) -> None:
    result = run("reap", "--url", "mysql://host/shop")
    assert result.exit_code == Exit.USAGE
    assert result.stderr.startswith("error[HF011]: mysql is not a database Holdfast can use\n")
    assert "  help: set HOLDFAST_URL" in result.stderr


@pytest.fixture
def full_device() -> Path:
    """A device that is always full."""
    device = Path("/dev/full")
    if not device.exists():
        skip_because_absent("/dev/full, a device that is always full", "Run the tests on Linux")
    return device


@pytest.mark.parametrize("unbuffered", ["", "1"], ids=["buffered", "unbuffered"])
@pytest.mark.parametrize("arguments", ["explain HF017", "explain", "--help", "config show"])
def test_what_the_system_refuses_is_said_in_words(
    arguments: str, unbuffered: str, full_device: Path
) -> None:
    with full_device.open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "holdfast", *arguments.split()],
            env=os.environ | {"PYTHONUNBUFFERED": unbuffered},
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.stderr.startswith("error[HF099]: No space left on device\n  help: ")
    assert len(done.stderr.splitlines()) == 2
    assert done.returncode == Exit.FAILED


def test_the_exit_code_says_it_where_no_word_can_be_written(full_device: Path) -> None:
    with full_device.open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "holdfast", "explain", "HF999"],
            env=os.environ | {"PYTHONUNBUFFERED": ""},
            stdout=full,
            stderr=full,
            check=False,
        )
    assert done.returncode == Exit.USAGE


def test_the_version_is_data(run: Run) -> None:
    result = run("--version")
    assert result.stdout.startswith("holdfast 0.")
    assert result.stderr == ""


def test_a_reader_that_goes_away_is_no_error() -> None:
    script = f"{shlex.quote(sys.executable)} -m holdfast explain -o ndjson | head -n 1"
    done = subprocess.run(
        ["bash", "-c", f"{script}; exit ${{PIPESTATUS[0]}}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert json.loads(done.stdout)["code"] == "HF010"
    assert done.stderr == ""
    # A short output may be gone before the reader is.
    assert done.returncode in {Exit.OK, Exit.BROKEN_PIPE}


def test_a_locale_that_lacks_a_letter_gets_an_escape_for_it() -> None:
    words = [sys.executable, "-m", "holdfast", "explain", "HF017"]
    environment = os.environ | {"PYTHONIOENCODING": "iso8859-5"}
    run = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=PATIENCE_S)
    assert run.stdout.startswith("HF017 \\xb7 HeartbeatTooSlow\n")
    assert run.returncode == Exit.OK


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_command_without_a_stream_does_its_work_all_the_same(
    stream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, stream, None)
    with pytest.raises(SystemExit) as ended:
        cli(["explain", "HF017"])
    getattr(sys, stream).close()
    assert ended.value.code == Exit.OK


def test_a_command_without_a_stdin_reads_nothing_and_asks_nobody(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    scene.start()
    for words, code in (
        (["jobs", "start", "mail.send", "-"], Exit.USAGE),
        (["jobs", "cancel", "type:mail.*"], Exit.REFUSED),
    ):
        monkeypatch.setattr(sys, "stdin", None)
        with pytest.raises(SystemExit) as ended:
            cli(words)
        sys.stdin.close()
        assert ended.value.code == code
        assert "error[HF" in capsys.readouterr().err


def test_an_interrupt_ends_a_command_quietly() -> None:
    script = (
        "import os\n"
        "from holdfast.cli import reference\n"
        "from holdfast.cli.main import main\n"
        f"reference.explain_codes = lambda: os.kill(os.getpid(), {int(signal.SIGINT)})\n"
        "main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, "explain"], capture_output=True, text=True, check=False
    )
    assert done.returncode == Exit.INTERRUPTED
    assert done.stdout == ""
    assert done.stderr.strip() == ""


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script_for_each_shell(shell: str, run: Run) -> None:
    result = run("completion", shell)
    assert result.exit_code == 0
    assert "_HOLDFAST_COMPLETE" in result.stdout


def test_the_shell_is_offered_commands_by_their_beginning() -> None:
    words = {"COMP_WORDS": "holdfast exp", "COMP_CWORD": "1", "_HOLDFAST_COMPLETE": "bash_complete"}
    done = subprocess.run(
        [sys.executable, "-c", "from holdfast.cli.main import main; main()"],
        env=os.environ | words,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == ["plain,explain"]


def test_the_exit_code_of_every_error_has_a_name() -> None:
    assert {Exit(kind.exit_code) for kind in subclasses_of(HoldfastError)} > {Exit.FAILED}


def subclasses_of(kind: type[HoldfastError]) -> Iterator[type[HoldfastError]]:
    """Every kind of error below one."""
    for each in kind.__subclasses__():
        yield each
        yield from subclasses_of(each)


def test_words_of_other_queues_lead_to_commands_that_exist() -> None:
    known = {" ".join(path) for path, _ in commands()}
    meant = {each.strip("`") for each in SYNONYMS.values()} - {"--help"}
    assert meant <= known


@pytest.mark.parametrize("term", ["lease", "Leases", "renew", "slot"])
def test_terms_are_explained_as_the_glossary_has_them(run: Run, term: str) -> None:
    glossary = (Path(holdfast.cli.__file__).parent / "glossary.md").read_text()
    found = json.loads(run("explain", term, "-o", "json").stdout)
    assert found
    assert all(f"| {each['term']} | {each['meaning']} |" in glossary for each in found)
    for each in found:
        words = run("explain", term).stdout.split()
        assert set(each["meaning"].split()[:-1]) <= set(words)
