"""What the documentation's build adds to Sphinx."""
