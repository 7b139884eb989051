"""The screen of `holdfast top`: its data through the admin layer, tabs that refresh, keys that act on rows."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.css.query import NoMatches
from textual.screen import ModalScreen
from textual.widgets import DataTable, Footer, Input, Static, TabbedContent, TabPane

from holdfast.admin.service import Admin
from holdfast.cli.cycles import CYCLE_COLUMNS
from holdfast.cli.dead_letters import GROUP_COLUMNS
from holdfast.cli.jobs import job_in_full
from holdfast.cli.output import JOB_COLUMNS, Column, Record, detail_lines, lay_out
from holdfast.cli.types import TYPE_COLUMNS
from holdfast.cli.workers import WORKER_COLUMNS, worker_record
from holdfast.commands.health import Health, read_health, summarize
from holdfast.core.duration import pluralize
from holdfast.core.errors import HoldfastError
from holdfast.core.ids import short_id

if TYPE_CHECKING:
    from holdfast.admin.access import Caller, Gateway

ROWS = 200
_TOTALLED = ("live", "completed", "failed")


Rows: TypeAlias = Mapping[str, Record]
"""The rows of a table by their keys; one whose key is empty cannot be acted on."""


class TopSource:
    """Everything `top` shows and does."""

    def __init__(self, gateway: Gateway, caller: Caller, filter: str = "") -> None:
        self.filter = filter
        self._gateway = gateway
        self._caller = caller
        self._admin = Admin(gateway)

    async def health(self) -> Health:
        """Read the queue's status."""
        return await self._gateway.read(self._caller, "overview.read", read_health)

    async def jobs(self) -> Rows:
        """Read the newest jobs that match the filter."""
        page = await self._admin.jobs.page(self._caller, self.filter, ROWS, None)
        return {each["id"]: each for each in page.items}

    async def types(self) -> Rows:
        rows = {
            each.totals.type: each.as_record()
            for each in await self._admin.types.list(self._caller)
        }
        if len(rows) < 2:
            return rows
        names = next(iter(rows.values()))
        totals = {name: sum(each[name] for each in rows.values()) for name in _TOTALLED}
        whole = {**dict.fromkeys(names), "type": "all types", "workers": "-", **totals}
        return {**rows, "": whole}

    async def workers(self) -> Rows:
        found = await self._admin.workers.list(self._caller)
        return {each.worker.id: worker_record(each) for each in found}

    async def dead(self) -> Rows:
        """Read dead letters, grouped by type and error."""
        groups = await self._admin.dead_letters.groups(self._caller, ROWS)
        return {each["filter"]: each for each in groups.items}

    async def cycles(self) -> Rows:
        found = await self._admin.cycles.list(self._caller, runs=1)
        return {each.cycle.name: each.as_json() for each in found}

    async def detail(self, id: str) -> str:
        """Return everything about a job, as text."""
        found = await self._admin.jobs.get(self._caller, id)
        shown = job_in_full(found)
        tries = [f"\nattempt {each['attempt']}: {each['error']}" for each in found.attempts]
        return "\n".join([shown.title, *detail_lines(shown), *tries])

    async def act(self, name: str, key: str) -> None:
        """Run an action, such as job.retry, on the row with this key."""
        noun, verb = name.split(".")
        nouns = {"job": "jobs", "type": "types", "worker": "workers", "dead": "dead_letters"}
        run = getattr(getattr(self._admin, nouns.get(noun, "cycles")), verb)
        match noun:
            case "job":
                await run(self._caller, [key])
            case "dead":
                await run(self._caller, filter=key)
            case _:
                await run(self._caller, key)


def head_lines(health: Health) -> str:
    """Return the queue's status as a sentence, and below it the figures."""
    words = " · ".join(f"{name} {value}" for name, value in health.words().items())
    return f"{summarize(health)}\n{words}, {pluralize(health.slots, 'slot')}"


class ConfirmDialog(ModalScreen[bool]):
    """A question; y answers yes, everything else no."""

    CSS = """
    ConfirmDialog { align: center middle; }
    ConfirmDialog > Static { width: auto; max-width: 90%; padding: 1 3; border: round $warning; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "dismiss(True)", "yes"),
        Binding("n,q,escape,enter", "dismiss(False)", "no"),
    ]

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text

    def compose(self) -> ComposeResult:
        yield Static(Text(f"{self._text}\n\n[y] yes   [n] no"))


class DetailDialog(ModalScreen[None]):
    """A text to read, read again at an interval if there is something to read it from."""

    CSS = """
    DetailDialog { align: center middle; }
    DetailDialog > VerticalScroll { width: 90%; height: 90%; padding: 1 2; border: round $accent; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("q,escape,enter", "dismiss", "close")]

    def __init__(
        self, text: str, read: Callable[[], Awaitable[str]] | None = None, interval: float = 1.0
    ) -> None:
        super().__init__()
        self._text = text
        self._read = read
        self._interval = interval

    def compose(self) -> ComposeResult:
        with VerticalScroll():
            yield Static(Text(self._text))

    def on_mount(self) -> None:
        """Refresh the text regularly."""
        if self._read is not None:
            self.set_interval(self._interval, self._refresh_text)

    async def _refresh_text(self) -> None:
        assert self._read is not None
        try:
            text = await self._read()
        except HoldfastError as error:
            text = str(error)
        self.query_one(Static).update(Text(text))


@dataclass(frozen=True, slots=True)
class Pane:
    """One tab; `actions` maps letters to what they do to the row under the cursor."""

    id: str
    title: str
    columns: Sequence[Column]
    read: Callable[[TopSource], Awaitable[Rows]]
    actions: Mapping[str, str] = field(default_factory=dict)


PANES = (
    Pane(
        "jobs",
        "Jobs",
        (Column("id", lambda row: short_id(row["id"])), *JOB_COLUMNS[1:]),
        TopSource.jobs,
        {"r": "job.retry", "c": "job.cancel", "n": "job.run_now"},
    ),
    Pane(
        "types",
        "Types",
        [each for each in TYPE_COLUMNS if each.title not in ("limits", "keys full")],
        TopSource.types,
        {"p": "type.pause", "u": "type.resume"},
    ),
    Pane(
        "workers",
        "Workers",
        [each for each in WORKER_COLUMNS if each.title not in ("version", "types")],
        TopSource.workers,
        {"d": "worker.drain"},
    ),
    Pane(
        "dead",
        "Dead letters",
        [each for each in GROUP_COLUMNS if each.title not in ("fingerprint", "oldest")],
        TopSource.dead,
        {"r": "dead.redrive", "x": "dead.drop"},
    ),
    Pane(
        "cycles",
        "Cycles",
        [each for each in CYCLE_COLUMNS if each.title != "last"],
        TopSource.cycles,
        {"n": "cycle.run_now", "p": "cycle.pause", "u": "cycle.resume"},
    ),
)

ACTION_LABELS = {
    "r": "retry",
    "c": "cancel",
    "n": "run now",
    "p": "pause",
    "u": "resume",
    "d": "drain",
    "x": "drop",
}
"""What each letter does; the uppercase letter does it without confirmation."""

KEYS = "\n".join(
    [
        "1–5      switch the tab",
        "↑ ↓      choose a row",
        "enter    show the job in full: why it waits, its input, its errors",
        "/        filter the jobs",
        "space    freeze and unfreeze the rows",
        "q        quit; close what is open",
        "",
        *(
            f"{letter} {letter.upper()}      {word}; {letter.upper()} does not ask"
            f" ({', '.join(pane.title for pane in PANES if letter in pane.actions)})"
            for letter, word in ACTION_LABELS.items()
        ),
    ]
)

_BY_ID = {pane.id: pane for pane in PANES}


class TopApp(App[None]):
    """A full-screen view with the keys of k9s."""

    TITLE = "holdfast top"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #head { height: 2; padding: 0 1; background: $boost; }
    #filter { display: none; dock: bottom; }
    DataTable { height: 1fr; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        *(
            Binding(str(place), f"show('{pane.id}')", pane.title, show=False)
            for place, pane in enumerate(PANES, start=1)
        ),
        *(
            Binding(letter, f"act('{letter}', False)", word)
            for letter, word in ACTION_LABELS.items()
        ),
        *(
            Binding(letter.upper(), f"act('{letter}', True)", word, show=False)
            for letter, word in ACTION_LABELS.items()
        ),
        Binding("slash", "ask_filter", "filter"),
        Binding("question_mark", "explain_keys", "keys", key_display="?"),
        Binding("space", "freeze", "freeze"),
        Binding("q", "quit", "quit"),
    ]

    def __init__(self, source: TopSource, interval: float, read_only: bool) -> None:
        super().__init__()
        self.is_frozen = False
        self._source = source
        self._interval = interval
        self._read_only = read_only

    @property
    def pane(self) -> Pane:
        """The active tab."""
        return _BY_ID[self.query_one(TabbedContent).active or PANES[0].id]

    def compose(self) -> ComposeResult:
        """Lay out the screen."""
        yield Static("…", id="head")
        with TabbedContent(initial=PANES[0].id):
            for place, pane in enumerate(PANES, start=1):
                with TabPane(f"{place} {pane.title}", id=pane.id):
                    yield DataTable(id=f"{pane.id}-table", cursor_type="row", zebra_stripes=True)
        yield Input(self._source.filter, placeholder="state:failed type:mail.* age>5m", id="filter")
        yield Footer()

    async def on_mount(self) -> None:
        """Add the columns, read the rows, and refresh them regularly."""
        for pane in PANES:
            table = self._table(pane)
            for column in pane.columns:
                table.add_column(column.title.upper(), key=column.title)
        self._table(PANES[0]).focus()
        await self.refresh_rows()
        self.set_interval(self._interval, self._refresh_unless_frozen)

    async def _refresh_unless_frozen(self) -> None:
        # Rows must not move while a key is about to act on one of them.
        if not self.is_frozen and len(self.screen_stack) == 1:
            await self.refresh_rows()

    async def refresh_rows(self) -> None:
        """Read the rows of the active tab; an error is shown until the next refresh."""
        pane = self.pane
        try:
            head = head_lines(await self._source.health())
            rows = await pane.read(self._source)
        except HoldfastError as error:
            self._show_head(str(error), "red")
            return
        self._show_head(f"{'frozen · ' if self.is_frozen else ''}{head}")
        self._fill(pane, rows)

    def _show_head(self, text: str, style: str = "") -> None:
        self.query_one("#head", Static).update(Text(text, style, no_wrap=True))

    def _fill(self, pane: Pane, rows: Rows) -> None:
        """Replace the rows; the cursor stays on its row."""
        table = self._table(pane)
        chosen = self._key(pane)
        table.clear()
        # A long name must not push the other columns off the screen; the scrollbar takes two.
        _, fitted, _ = lay_out(list(rows.values()), pane.columns, self.size.width - 4)
        for (key, row), texts in zip(rows.items(), fitted, strict=True):
            colours = [each.colour(row) or "" for each in pane.columns]
            table.add_row(*map(Text, texts, colours), key=key)
        if chosen is not None and chosen in rows:
            table.move_cursor(row=table.get_row_index(chosen))

    def _table(self, pane: Pane) -> DataTable[Text]:
        return self.query_one(f"#{pane.id}-table", DataTable)

    def _key(self, pane: Pane) -> str | None:
        table = self._table(pane)
        if not table.row_count:
            return None
        return table.coordinate_to_cell_key(table.cursor_coordinate).row_key.value

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer only the letters of this tab."""
        if action != "act":
            return True
        try:
            return not self._read_only and parameters[0] in self.pane.actions
        except NoMatches:
            return False

    async def on_tabbed_content_tab_activated(self) -> None:
        """Read the rows of the new tab."""
        self.refresh_bindings()
        self._table(self.pane).focus()
        await self.refresh_rows()

    def action_show(self, pane: str) -> None:
        """Switch to a tab."""
        self.query_one(TabbedContent).active = pane

    async def action_freeze(self) -> None:
        """Freeze or unfreeze the rows."""
        self.is_frozen = not self.is_frozen
        await self.refresh_rows()

    def action_explain_keys(self) -> None:
        """List all keys."""
        self.push_screen(DetailDialog(KEYS))

    def action_ask_filter(self) -> None:
        self.action_show("jobs")
        box = self.query_one("#filter", Input)
        box.display = True
        box.focus()

    async def on_input_submitted(self, event: Input.Submitted) -> None:
        """Apply the filter, unless it is invalid."""
        before, self._source.filter = self._source.filter, event.value
        try:
            await self._source.jobs()
        except HoldfastError as error:
            self._source.filter = before
            self.notify(str(error), severity="error")
            return
        event.input.display = False
        self._table(PANES[0]).focus()
        await self.refresh_rows()

    async def on_data_table_row_selected(self) -> None:
        """Show the job under the cursor in full."""
        key = self._key(self.pane)
        if self.pane.id != "jobs" or key is None:
            return
        try:
            text = await self._source.detail(key)
            self.push_screen(DetailDialog(text, lambda: self._source.detail(key), self._interval))
        except HoldfastError as error:
            self.notify(str(error), severity="error")

    async def action_act(self, letter: str, is_sure: bool) -> None:
        """Run a letter's action on the row under the cursor, after a confirmation unless `is_sure`."""
        pane, key = self.pane, self._key(self.pane)
        name = pane.actions.get(letter)
        if name is None or not key or self._read_only:
            return
        if is_sure:
            await self._act(name, key)
            return
        text = f"{ACTION_LABELS[letter].capitalize()} {key}?"

        async def on_answer(yes: bool | None) -> None:
            if yes:
                await self._act(name, key)

        self.push_screen(ConfirmDialog(text), on_answer)

    async def _act(self, name: str, key: str) -> None:
        try:
            await self._source.act(name, key)
        except HoldfastError as error:
            self.notify(str(error), severity="error")
            return
        self.notify(f"{name.partition('.')[2].replace('_', ' ')}: {key}")
        await self.refresh_rows()
