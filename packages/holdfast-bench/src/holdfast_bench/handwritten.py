"""What the hand-written loops share: the bench's own SQL, which stays apart from the store's, and ids made by hand."""

from __future__ import annotations

import time
from uuid import UUID, uuid4

from holdfast.storage.sql_loader import load_statements

SQLITE = load_statements("holdfast_bench")
"""As text, for sqlite3."""

SQL = {name: text.encode() for name, text in SQLITE.items()}
"""As psycopg takes what is no literal of the program."""

_made = 0


def uuid7() -> UUID:
    """Make an id as a careful author would by hand: time, counter, randomness."""
    global _made
    _made += 1
    low = (2 << 62) | (uuid4().int & ((1 << 62) - 1))
    return UUID(int=(int(time.time() * 1000) << 80) | (7 << 76) | ((_made & 0xFFF) << 64) | low)
