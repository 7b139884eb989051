"""The laws of rows."""
