"""For PostgreSQL: upgrades of a schema in use, grants of roles, and whether a server suits Holdfast."""
