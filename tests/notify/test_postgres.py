"""PostgreSQL's notifier against real servers."""

import subprocess
import sys
from collections.abc import Iterator

import psycopg
import pytest

from holdfast.core.errors import InvalidIdentifier, UnusableUrl
from holdfast.notify.base import LOOK_EVERYWHERE, Hint
from holdfast.notify.encoding import channel_name, encode
from holdfast.notify.postgres import postgres_notifier
from holdfast_brokers.conformance import (
    PATIENCE_S,
    HintRecorder,
    MakeNotifier,
    NotifierConformance,
    NotifierServer,
    NotifierServerConformance,
)
from tests.notify.servers import FreezablePostgres
from tests.notify.timings import FAST
from tests.support.installation import embedded_binaries
from tests.support.process import PostgresProcess

SEND_AND_END = """
import sys
from holdfast.notify.factory import open_notifier
from holdfast.notify.base import Hint

open_notifier(database_url=sys.argv[1]).send([Hint("due", "mail")])
"""

LISTENERS = """
select count(*) from pg_stat_activity
 where application_name = 'holdfast hint listener' and datname = current_database()
"""
KILL_LISTENERS = """
select pg_terminate_backend(pid) from pg_stat_activity
 where application_name = 'holdfast hint listener' and datname = current_database()
"""


@pytest.fixture(scope="module")
def process() -> Iterator[PostgresProcess]:
    with PostgresProcess(embedded_binaries()) as process:
        yield process


class TestPostgresThatFails(NotifierServerConformance):
    @pytest.fixture
    def server(self, process: PostgresProcess) -> Iterator[NotifierServer]:
        server = FreezablePostgres(process)
        yield server
        server.restore()

    @pytest.fixture
    def make_notifier(self, process: PostgresProcess, server: NotifierServer) -> MakeNotifier:
        return lambda: postgres_notifier(process.url, "holdfast", timings=FAST)


class TestOtherPostgres(NotifierConformance):
    @pytest.fixture
    def make_notifier(self, other_postgres_url: str) -> MakeNotifier:
        return lambda: postgres_notifier(other_postgres_url, "holdfast", timings=FAST)


@pytest.fixture
def recorder(postgres_url: str) -> Iterator[HintRecorder]:
    notifier = postgres_notifier(postgres_url, "holdfast", timings=FAST)
    recorder = HintRecorder()
    assert notifier.listen(recorder).wait_until_alive(PATIENCE_S)
    recorder.forget()
    yield recorder
    notifier.close()


def test_a_killed_backend_is_replaced_and_a_look_is_asked_for(postgres_url: str) -> None:
    notifier = postgres_notifier(postgres_url, "holdfast", timings=FAST)
    recorder = HintRecorder()
    listener = notifier.listen(recorder)
    assert listener.wait_until_alive(PATIENCE_S)
    recorder.forget()
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(KILL_LISTENERS)
    recorder.wait_until(lambda received: received.count(LOOK_EVERYWHERE) >= 2)
    assert listener.wait_until_alive(PATIENCE_S)
    assert listener.reconnects == 1
    notifier.close()


def test_a_hint_sent_in_a_transaction_arrives_with_its_commit(
    postgres_url: str, recorder: HintRecorder
) -> None:
    with psycopg.connect(postgres_url) as connection:
        for payload in encode([Hint("due", "mail")]):
            connection.execute("select pg_notify(%s, %s)", [channel_name("holdfast"), payload])
    recorder.wait_until(lambda received: received == [Hint("due", "mail")])


def test_schemas_do_not_hear_each_other(postgres_url: str, recorder: HintRecorder) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        for schema, type in (("acme_jobs", "theirs"), ("holdfast", "ours")):
            (payload,) = encode([Hint("due", type)])
            connection.execute("select pg_notify(%s, %s)", [channel_name(schema), payload])
    recorder.wait_until(lambda received: received == [Hint("due", "ours")])


def test_foreign_payloads_are_passed_over(postgres_url: str, recorder: HintRecorder) -> None:
    (payload,) = encode([Hint("due", "ours")])
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        for text in ("", "hello", "[[[", '{"k":"due"}', '[{"k":"new"},7]', payload):
            connection.execute("select pg_notify(%s, %s)", [channel_name("holdfast"), text])
    recorder.wait_until(lambda received: received == [Hint("due", "ours")])


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_process_that_ends_at_once_has_sent_its_hints(
    host: str, postgres_url: str, recorder: HintRecorder
) -> None:
    # asyncio resolves a name in an executor, and an interpreter that ends has none.
    url = postgres_url.replace("127.0.0.1", host)
    subprocess.run([sys.executable, "-c", SEND_AND_END, url], check=True, timeout=PATIENCE_S)
    recorder.wait_until(lambda received: received == [Hint("due", "mail")])


def test_listening_takes_another_url_where_a_pooler_stands_in_between(
    postgres_url: str, recorder: HintRecorder
) -> None:
    unreachable = "postgresql://nobody@127.0.0.1:1/nowhere"
    notifier = postgres_notifier(postgres_url, "holdfast", listen_url=unreachable)
    listener = notifier.listen(HintRecorder())
    notifier.send([Hint("due", "mail")])
    recorder.wait_until(lambda received: received == [Hint("due", "mail")])
    assert not listener.alive
    notifier.close()


def test_proofs_of_life_wake_nobody_else(postgres_url: str, recorder: HintRecorder) -> None:
    busy = postgres_notifier(postgres_url, "holdfast", timings=FAST)
    listening = [busy.listen(HintRecorder()) for _ in range(3)]
    assert all(listener.wait_until_alive(PATIENCE_S) for listener in listening)
    busy.send([Hint("due", "mail")])
    recorder.wait_until(lambda received: bool(received))
    assert recorder.received == [Hint("due", "mail")]
    busy.close()


def test_a_bad_schema_or_url_is_refused_at_once() -> None:
    with pytest.raises(InvalidIdentifier):
        postgres_notifier("postgresql://localhost/x", 'x"; drop schema y; --')
    with pytest.raises(UnusableUrl):
        postgres_notifier("postgresql://localhost/x?nonsense=1", "holdfast")


def test_all_listeners_of_a_process_share_one_connection(postgres_url: str) -> None:
    notifier = postgres_notifier(postgres_url, "holdfast")
    recorders = [HintRecorder(), HintRecorder(), HintRecorder()]
    listeners = [notifier.listen(each) for each in recorders]
    assert all(each.wait_until_alive(PATIENCE_S) for each in listeners)
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        assert connection.execute(LISTENERS).fetchone() == (1,)
        for recorder, listener in zip(recorders[:2], listeners[:2], strict=True):
            listener.close()
            recorder.forget()
        notifier.send([Hint("due", "mail")])
        recorders[2].wait_for_type("mail")
        assert [each.received for each in recorders[:2]] == [[], []]
    notifier.close()
    assert not any(each.alive for each in listeners)
