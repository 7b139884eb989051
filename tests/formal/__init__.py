"""The formal model in formal/: what its files say, and a run of TLC over all of them."""
