"""The input every contender carries: about 200 bytes of JSON, as in the peers' measurements."""

from __future__ import annotations

from typing import Any

import msgspec

INPUT: dict[str, Any] = {
    "order": 123456,
    "email": "someone@example.org",
    "items": [1, 2, 3, 4, 5],
    "note": "x" * 120,
}
INPUT_TEXT = msgspec.json.encode(INPUT).decode()
OUTPUT_TEXT = '{"ok":true}'
