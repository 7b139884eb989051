"""Redis's notifier against a real server."""

from collections.abc import Iterator

import pytest

from holdfast.core.errors import ConfigError
from holdfast_brokers.conformance import MakeNotifier, NotifierServerConformance
from holdfast_brokers.redis import redis_notifier
from tests.notify.servers import LeashedServer, redis_server
from tests.notify.timings import FAST


class TestRedis(NotifierServerConformance):
    @pytest.fixture
    def server(self) -> Iterator[LeashedServer]:
        with redis_server() as server:
            yield server

    @pytest.fixture
    def make_notifier(self, server: LeashedServer) -> MakeNotifier:
        url = f"redis://127.0.0.1:{server.port}/0"
        return lambda: redis_notifier(url, "holdfast", timings=FAST)


def test_a_url_that_redis_does_not_understand_is_refused_at_once() -> None:
    with pytest.raises(ConfigError, match="redis://host") as refused:
        redis_notifier("http://localhost", "holdfast")
    assert refused.value.code == "HF010"
