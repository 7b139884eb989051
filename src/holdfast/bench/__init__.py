"""`holdfast bench`: measures the installed `holdfast worker` beside hand-written loops in the same run."""
