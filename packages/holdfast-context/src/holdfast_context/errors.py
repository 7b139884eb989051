"""Errors of contexts."""

from __future__ import annotations

from holdfast.core.errors import HandlerInvalid, InvalidOption


class ContextNotEntered(HandlerInvalid, code="HF202"):
    """The context cannot be entered where the handler runs.

    A sync handler runs in a thread, where nothing can be awaited, so it needs an `enter` that works with
    `with`. What `begin` returns is awaited in async handlers only.
    """

    fix = "give `enter` a context manager for `with`, which serves sync and async handlers alike"


class ContextDeclared(InvalidOption, code="HF203"):
    """The application has a context already.

    There is one for all its jobs: two would not know which of them goes first.
    """

    fix = "capture everything in one function, and enter it in one"


class ConfinementInvalid(InvalidOption, code="HF215"):
    """A token or user is confined to something that no job can be in.

    What one is confined to is a single value of the context, and the application must declare its name.
    """

    fix = "write one term with one value, as in `context.tenant:acme`"
