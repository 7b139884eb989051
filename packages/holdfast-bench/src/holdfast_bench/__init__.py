"""`holdfast bench`: measures the installed `holdfast worker` against hand-written loops in the same run."""
