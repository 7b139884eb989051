"""The doctor: checks of configuration, fleet and database, each with what it measured and its fix."""
