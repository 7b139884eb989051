"""Table layouts that were considered, each with the same protocol: start, claim with a token, renew, complete fenced.

One `.sql` file each, of statements under the names `tables`, `start`, `claim`, `renew` and `complete`.
"""
