"""Helpers for applications, one module per occasion; nothing else of Holdfast depends on them."""
