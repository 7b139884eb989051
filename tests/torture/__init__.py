"""Everything that takes long, on two processors within an hour: `parts` says what it is, `__main__` runs it."""
