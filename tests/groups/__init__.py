"""JobGroups of jobs."""
