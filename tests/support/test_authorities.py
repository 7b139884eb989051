"""Which authorities the processes of a test run trust."""

import os

import pytest

from tests.support.authorities import (
    NONE,
    USUAL,
    VARIABLES,
    trust_no_authority,
    with_usual_authorities,
)


def test_the_usual_authorities_come_back_for_a_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(USUAL + name, raising=False)
    monkeypatch.setenv("SSL_CERT_FILE", "/etc/own.pem")
    for _ in range(2):  # the second time as a process of the run
        trust_no_authority()
        assert "SSL_CERT_FILE" not in os.environ
        assert os.environ["SSL_CERT_DIR"] == NONE
        again = with_usual_authorities(os.environ)
        assert again["SSL_CERT_FILE"] == "/etc/own.pem"
        assert "SSL_CERT_DIR" not in again
    del os.environ[f"{USUAL}SSL_CERT_FILE"]
