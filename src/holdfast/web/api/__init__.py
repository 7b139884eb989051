"""Handlers of the JSON API, one module per noun; each is thin over the service."""
