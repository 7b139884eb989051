"""The tests; folders mirror src/holdfast."""
