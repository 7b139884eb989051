"""Files: one contract for every store of objects."""
