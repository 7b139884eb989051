"""What is checked of a PostgreSQL server: whether it suits Holdfast, and what would hurt it there."""
