"""Tests speak to this machine, without TLS: no client of HTTP has to read the certificates of all authorities.

That takes 40 ms for each client. What comes from a registry is fetched with the usual authorities.
"""

import os
from collections.abc import Mapping
from pathlib import Path

VARIABLES = ("SSL_CERT_FILE", "SSL_CERT_DIR")
NONE = str(Path(__file__).parent)
USUAL = "USUAL_"
"""Begins the names under which other processes of the run find the usual ones."""


def trust_no_authority() -> None:
    """Have this process, and those that it starts, look for authorities where there are none."""
    for name in VARIABLES:
        given = os.environ.pop(name, None)
        if given is not None and given != NONE:
            os.environ[USUAL + name] = given
    os.environ["SSL_CERT_DIR"] = NONE


def with_usual_authorities(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment as it was before `trust_no_authority`."""
    other = {name: text for name, text in environment.items() if name not in VARIABLES}
    return other | {
        name: environment[USUAL + name] for name in VARIABLES if USUAL + name in environment
    }
