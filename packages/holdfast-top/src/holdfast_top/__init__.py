"""`holdfast top`: the queue, live, in a terminal."""
