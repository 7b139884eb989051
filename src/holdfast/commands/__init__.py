"""Use cases as operations: no colour, no dialect, one module each."""
