"""Output over HTTP."""

ROUTES = ()
