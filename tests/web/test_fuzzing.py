"""Whatever fits the API's own description, and much that does not, is never answered with a failure of ours."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import Case
from schemathesis.core.result import Ok
from schemathesis.generation import GenerationMode
from starlette.testclient import TestClient

from holdfast.app import Holdfast
from holdfast.settings import read_settings
from holdfast.web.app import create
from holdfast.web.openapi import ROUTES, document
from tests.cli.scene import Scene

HOST = "http://127.0.0.1"
EXAMPLES = int(os.environ.get("HOLDFAST_FUZZ_EXAMPLES", "5"))

# Streams do not end, waits and ticks take their time; they have tests of their own.
LONG = [
    route.path
    for route in ROUTES
    if route.media == "text/event-stream" or route.path.endswith(("/wait", "/run-once"))
]
OPEN_TO_503 = ("/readyz",)
ONLY_WITH_A_TOKEN = ("/api/settings/events/outbox/stats",)

FUZZ = settings(
    max_examples=EXAMPLES,
    deadline=None,
    database=None,
    derandomize=True,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


def _check(store: str, client: TestClient, case: Case[Any]) -> None:
    request: dict[str, Any] = case.as_transport_kwargs(base_url=HOST)
    request.pop("cookies", None)
    # An invented token would be refused before anything else is looked at; without one, a request is the local admin's.
    headers = {
        name: str(value).encode("latin-1", "replace")
        for name, value in request.pop("headers").items()
        if name.lower() != "authorization"
    }
    answer = client.request(**request, headers=headers)
    if case.path in OPEN_TO_503:
        return
    if case.path not in ONLY_WITH_A_TOKEN:
        assert answer.status_code != 401, f"{store}: {case.method} {case.path} was not looked at"
    assert answer.status_code < 500, f"{store}: {case.method} {case.path}: {answer.text[:300]}"
    if answer.status_code >= 400:
        assert answer.headers["content-type"] == "application/problem+json"


@contextmanager
def client_of(url: str) -> Iterator[TestClient]:
    """Yield a client of the API over a database with something in it."""
    app = Holdfast(url, open_types=True)
    app.migrate()
    scene = Scene(app.database)
    scene.failed()
    scene.worker("mail.send")
    served = create(app, settings=read_settings({}), dashboard=False)
    with TestClient(served, base_url=HOST, client=("127.0.0.1", 1)) as client:
        yield client
    app.close()


# To invent a request costs more than to answer it: each is sent to both stores.
@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda each: each.value)
def test_no_request_makes_the_api_fail(
    sqlite_url: str, postgres_url: str, mode: GenerationMode
) -> None:
    schema = schemathesis.openapi.from_dict(document()).exclude(path=LONG)
    called = 0
    with client_of(sqlite_url) as on_sqlite, client_of(postgres_url) as on_postgres:
        for found in schema.get_all_operations():
            assert isinstance(found, Ok)
            operation = found.ok()

            @FUZZ
            @given(case=operation.as_strategy(generation_mode=mode))
            def fuzz(case: Case[Any]) -> None:
                nonlocal called
                called += 1
                _check("sqlite", on_sqlite, case)
                _check("postgres", on_postgres, case)

            if mode is GenerationMode.NEGATIVE and not (
                operation.body or list(operation.iter_parameters())
            ):
                continue
            fuzz()
    assert called > len(ROUTES)
