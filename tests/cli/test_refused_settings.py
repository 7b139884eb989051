"""Settings that cannot be used, or do not go together, stop a worker and a tick before anything is claimed."""

from pathlib import Path
from uuid import uuid4

import pytest

from holdfast.cli.exit_codes import Exit
from tests.cli.conftest import Run
from tests.cli.scene import Scene

APPLICATION = """
from holdfast import Holdfast, Job

app = Holdfast()

@app.job("hello")
async def hello(job: Job[dict]) -> None: ...
"""


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HOLDFAST_URL", "postgrse://ana:hush@db/shop"),
        ("HOLDFAST_URL", "postgresql://ana:hush@"),
        ("HOLDFAST_URL", "postgresql://ana:hush@db:99999/shop"),
        ("HOLDFAST_URL", "postgresql://ana:hush@db:5432,db2:x/shop"),
        ("HOLDFAST_URL", "sqlite://shop.db"),
        ("HOLDFAST_SCHEMA", "a-b"),
        ("HOLDFAST_NOTIFIER", "redsi://:hush@cache/0"),
        ("HOLDFAST_NOTIFIER", "locl"),
        ("HOLDFAST_LISTEN_URL", "mysql://ana:hush@db/shop"),
        ("HOLDFAST_ARCHIVE", "s4://archive"),
        ("HOLDFAST_ARCHIVE", "s3://"),
        ("HOLDFAST_SEAL_KEYS", "2026:aHVzaA=="),
        ("HOLDFAST_SEAL_KEYS", "aHVzaA=="),
        ("WORKER_API_BASE_URL", "http://api:99999"),
        ("WORKER_API_SERVICE_TOKEN", "hush"),
        ("WORKER_API_SERVICE_TOKEN_PREVIOUS", "hush"),
    ],
)
def test_a_value_that_cannot_work_is_refused_where_settings_are_shown(
    run: Run, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    result = run("config", "show")
    assert result.exit_code == Exit.USAGE
    assert result.stdout == ""
    assert "error[HF01" in result.stderr
    assert "hush" not in result.stderr
    assert "aHVzaA" not in result.stderr


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """An application that no other test has imported."""
    name = f"shop_{uuid4().hex}"
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    (tmp_path / f"{name}.py").write_text(APPLICATION)
    return f"{name}:app"


@pytest.mark.parametrize(
    "wrong",
    [
        {"OUTBOX_LEASE_HEARTBEAT_MS": "20000"},
        {"WORKER_SHUTDOWN_TIMEOUT_MS": "61000"},
        {"OUTBOX_REAPER_INTERVAL_MS": "60000"},
        {"WORKER_TICK_SHARD_INDEX": "0"},
        {"WORKER_TICK_SHARD_INDEX": "2", "WORKER_TICK_SHARD_COUNT": "2"},
        {"OUTBOX_BATCH_SIZE": "many"},
        {"WORKER_IDLE_BACKOFF_MIN_MS": "60000", "WORKER_IDLE_BACKOFF_MAX_MS": "30000"},
        {"HOLDFAST_CONNECTIONS": "0"},
    ],
    ids=lambda wrong: next(iter(wrong)),
)
@pytest.mark.parametrize("words", [("worker", "--drain"), ("tick",)], ids=["worker", "tick"])
def test_settings_that_cannot_be_used_are_refused_before_anything_is_claimed(
    run: Run,
    shop: str,
    scene: Scene,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    wrong: dict[str, str],
) -> None:
    id = scene.start("hello", input="{}")
    for name, value in wrong.items():
        monkeypatch.setenv(name, value)
    result = run(words[0], shop, *words[1:])
    assert result.exit_code == Exit.USAGE
    assert any(name in result.stderr for name in wrong)
    assert scene.state(id) == "pending"
