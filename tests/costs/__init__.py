"""Limits that count what jobs cost, as applications use them."""
