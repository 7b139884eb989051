"""The notifier over NATS against a real server."""

from collections.abc import Iterator

import pytest

from holdfast_brokers.conformance import MakeNotifier, NotifierServerConformance
from holdfast_brokers.nats import nats_notifier
from tests.notify.servers import LeashedServer, nats_server
from tests.notify.timings import FAST


class TestNats(NotifierServerConformance):
    @pytest.fixture
    def server(self) -> Iterator[LeashedServer]:
        with nats_server() as server:
            yield server

    @pytest.fixture
    def make_notifier(self, server: LeashedServer) -> MakeNotifier:
        url = f"nats://127.0.0.1:{server.port}"
        return lambda: nats_notifier(url, "holdfast", timings=FAST)
