"""The notifier over a server: batches and listeners go over lines of their own."""

from __future__ import annotations

from holdfast.notify.line import Dial, LineOutlet
from holdfast.notify.listener import LineListener, Patience
from holdfast.notify.outlet import OutletNotifier
from holdfast.notify.sender import Pace


class LineNotifier(OutletNotifier):
    """See `port.Notifier`. It connects when it is first used."""

    def __init__(
        self, dial: Dial, pace: Pace | None = None, patience: Patience | None = None
    ) -> None:
        super().__init__(
            lambda: LineOutlet(dial), lambda on_hint: LineListener(dial, on_hint, patience), pace
        )
