"""The authorities that calls to other services trust."""

from __future__ import annotations

import functools
import ssl

import httpx


@functools.cache
def trusted_authorities() -> ssl.SSLContext:
    """Return the certificates to check others by, read once: reading them takes longer than most calls."""
    return httpx.create_ssl_context()
