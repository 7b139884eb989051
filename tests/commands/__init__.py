"""Use cases, apart from the stores that carry them out."""
