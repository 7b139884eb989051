"""What a handler's annotations say: the type of its input, of its output, and whether it takes batches."""

from __future__ import annotations
