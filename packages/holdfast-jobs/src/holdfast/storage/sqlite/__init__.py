"""The SQLite store: the same tables and meaning as PostgreSQL's, in small statements under one write lock."""
