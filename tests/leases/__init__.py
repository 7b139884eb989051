"""Leases for rows of your own tables."""
