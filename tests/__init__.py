"""The tests; folders mirror those of packages/holdfast-jobs/src/holdfast, and the other packages."""
