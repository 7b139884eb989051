"""The producer's side: starting, publishing and reading through whatever connection the caller holds."""
