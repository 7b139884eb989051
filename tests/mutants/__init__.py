"""Mutation testing of the SQL statements."""
