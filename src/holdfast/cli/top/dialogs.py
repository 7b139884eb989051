"""Dialogs of the live view: a question with two answers, and a text to be read."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static


class Question(ModalScreen[bool]):
    """Asks; y answers yes, everything else no."""

    CSS = """
    Question { align: center middle; }
    Question > Static { width: auto; max-width: 90%; padding: 1 3; border: round $warning; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", "yes"),
        Binding("n,q,escape,enter", "answer(False)", "no"),
    ]

    def __init__(self, text: str) -> None:
        """Take what is asked."""
        super().__init__()
        self._text = text

    def compose(self) -> ComposeResult:
        """Show the question."""
        yield Static(Text(f"{self._text}\n\n[y] yes   [n] no"))

    def action_answer(self, yes: bool) -> None:
        """Answer and leave."""
        self.dismiss(yes)


class Details(ModalScreen[None]):
    """Shows a text until a key is pressed."""

    CSS = """
    Details { align: center middle; }
    Details > VerticalScroll { width: 90%; height: 90%; padding: 1 2; border: round $accent; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("q,escape,enter", "dismiss", "close")]

    def __init__(self, text: str) -> None:
        """Take what is shown."""
        super().__init__()
        self._text = text

    def compose(self) -> ComposeResult:
        """Show the text."""
        with VerticalScroll():
            yield Static(Text(self._text))
