"""The base class of all errors, and the catalogue that `holdfast explain` reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from inspect import cleandoc
from typing import Any, ClassVar

from holdfast.core.error_text import words_of


class HoldfastError(Exception):
    """An error with a code, a one-line message and its fix.

    Subclasses with a code document themselves: the docstring's first line is the title, its second
    paragraph explains why the error exists, and `fix` is the general remedy.
    """

    code: ClassVar[str] = ""
    fix: ClassVar[str] = ""
    retryable: ClassVar[bool] = False
    """Whether an attempt that ends with this error is worth another attempt."""

    def __init__(
        self,
        message: object,
        *,
        help: str | None = None,
        details: Sequence[str] = (),
        rule: str | None = None,
    ) -> None:
        """Describe one occurrence; without `help` the class's general `fix` is shown."""
        super().__init__(message)
        # Handlers also write `raise Permanent(error)` and mean the text of that error.
        self.message = message if isinstance(message, str) else words_of(message)
        self.help = self.fix if help is None else help
        self.details = tuple(details)
        self.rule = rule

    def __str__(self) -> str:
        """Return code, message and help on one line."""
        text = f"[{self.code}] {self.message}" if self.code else self.message
        return " ".join((f"{text} ({self.help})" if self.help else text).split())

    def render(self) -> str:
        """Return the block that terminals show: message, details, rule and help."""
        lines = [f"error[{self.code}]: {self.message}"]
        lines += [f"  {line}" for line in self.details]
        if self.rule:
            lines.append(f"  rule: {self.rule}")
        if self.help:
            lines.append(f"  help: {self.help}")
        return "\n".join(lines)

    def __reduce__(self) -> tuple[Any, ...]:
        """Make the error picklable although its subclasses have different constructors."""
        return _restore, (type(self), self.args, self.__dict__)


def _restore(
    kind: type[HoldfastError], args: tuple[Any, ...], attributes: dict[str, Any]
) -> HoldfastError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(attributes)
    return error


@dataclass(frozen=True, slots=True)
class Explanation:
    """What `holdfast explain` says about one code."""

    code: str
    name: str
    title: str
    text: str
    fix: str


def explanations(root: type[HoldfastError] = HoldfastError) -> dict[str, Explanation]:
    """Return the catalogue of all codes below `root`, sorted by code."""
    found: dict[str, Explanation] = {}
    for kind in root.__subclasses__():
        if "code" in kind.__dict__:
            found[kind.code] = _explanation(kind)
        found |= explanations(kind)
    return dict(sorted(found.items()))


def _explanation(kind: type[HoldfastError]) -> Explanation:
    title, _, text = cleandoc(kind.__doc__ or kind.__name__).partition("\n\n")
    return Explanation(
        code=kind.code,
        name=kind.__name__,
        title=title.removesuffix("."),
        text=" ".join(text.split()),
        fix=kind.fix,
    )
