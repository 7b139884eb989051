"""The PostgreSQL store: connections and transactions, statements in `sql`, tables in `migrations`."""
