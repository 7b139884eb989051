"""`holdfast top`: a live view of everything, driven by keys."""
