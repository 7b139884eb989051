"""A pure model of the store, and the machine that holds both stores against it."""
