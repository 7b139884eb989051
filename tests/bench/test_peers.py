"""Other queues are measured as ours is; the tests need no registry, so ours is the one that runs here."""

from dataclasses import replace
from pathlib import Path

import pytest

from holdfast import __version__
from holdfast_bench.measurement import TINY
from holdfast_bench.peer_contest import Contender, measure_once
from holdfast_bench.peer_queues import (
    ADAPTERS,
    CACHE_VARIABLE,
    OURS,
    PEERS,
    Peer,
    PeerMissing,
    adapter_command,
    reason,
)
from holdfast_bench.result_tables import PEER_FIGURES, print_peers
from holdfast_bench.servers import BenchServer
from tests.bench.test_command import bench
from tests.support.postgres import PostgresServer

MAX_ADAPTER_LINES = 70
NAMED = {
    *("procrastinate", "pgqueuer", "oban", "awa-pg", "chancy", "dbos", "huey", "honker"),
    *("graphile-worker", "pg-boss", "absurd", "faststream-outbox"),
}


def named(name: str) -> Peer:
    """Return a peer."""
    (peer,) = [each for each in PEERS if each.name == name]
    return peer


def test_the_peers_are_those_that_people_compare() -> None:
    assert {each.name for each in PEERS} == NAMED


@pytest.mark.parametrize("peer", [OURS, *PEERS], ids=lambda peer: peer.name)
def test_every_peer_has_a_short_adapter_and_a_pinned_version(peer: Peer) -> None:
    lines = (ADAPTERS / peer.adapter).read_text().splitlines()
    assert len(lines) < MAX_ADAPTER_LINES
    assert all(peer.version in each for each in peer.packages[:1])


@pytest.mark.timeout(400)
def test_ours_is_measured_by_the_same_adapter_as_others(
    postgres_server: PostgresServer, capsys: pytest.CaptureFixture[str]
) -> None:
    with BenchServer("yours", postgres_server.url) as server:
        contender = Contender(OURS, "best", adapter_command(OURS), server)
        measure_once(contender, TINY)
    row = contender.row()
    assert row.notes == []
    assert set(row.figures) == set(PEER_FIGURES)
    assert all(value > 0 for value in row.figures.values())
    # Coroutines that wait do nothing else: with the steps of the figure before, they would take six times as long.
    assert row.figures["io_async"] > row.figures["io_threads"] / 3
    assert row.version == __version__
    print_peers([row])
    assert "holdfast (" in capsys.readouterr().out


def test_a_worker_that_ends_by_itself_leaves_its_figures_empty_and_says_why(
    postgres_server: PostgresServer,
) -> None:
    with BenchServer("yours", postgres_server.url) as server:
        contender = Contender(OURS, "best", ["/bin/false"], server)
        measure_once(contender, TINY)
    row = contender.row()
    assert row.figures == {}
    assert row.notes == ["setup:"]


def test_a_peer_that_the_registry_does_not_give_is_named_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    with pytest.raises(PeerMissing, match=r"the package index has no huey==\S+ that"):
        adapter_command(named("huey"))


def test_a_peer_for_a_newer_python_says_which() -> None:
    said = """
    ERROR: Ignored the following versions that require a different python version: 0.7.0 Requires-Python >=3.12
    ERROR: Could not find a version that satisfies the requirement oban==0.7.0 (from versions: none)
    ERROR: No matching distribution found for oban==0.7.0
    """
    assert reason(said) == "needs Python >=3.12"


def test_a_peer_for_node_needs_node(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PeerMissing, match="node is not installed"):
        adapter_command(named("pg-boss"))


def test_a_peer_that_no_interpreter_here_can_run_says_what_to_give(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    peer = replace(named("oban"), python=(9, 9))
    with pytest.raises(PeerMissing, match=r"needs Python 9\.9 or newer; .* --peer-python PATH"):
        adapter_command(peer)
    with pytest.raises(PeerMissing, match=r"needs Python 9\.9"):
        adapter_command(peer, python="/no/such/python")


def test_a_peer_that_is_not_known_is_refused_with_those_that_are() -> None:
    done = bench("--peers", "celery")
    assert done.returncode == 2
    assert "'celery' is not among procrastinate, pgqueuer" in done.stderr
