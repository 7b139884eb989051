"""The PostgreSQL store: one module per aggregate, statements in `sql`, tables in `migrations`."""
