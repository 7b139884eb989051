"""The process's maker of ids: the only place where ids meet the clock and the system's randomness."""

from __future__ import annotations

import os
import threading
import time

from holdfast.core.ids import IdMaker

_maker = IdMaker(lambda: time.time_ns() // 1_000_000, os.urandom, threading.Lock())

new_id = _maker.next
new_ids = _maker.many
