"""The store and its operations, its two dialects, and the connections under them."""
