"""`make tenders`: the whole application as one command, and the books that can find it wrong."""

import re
import shutil
from collections import Counter
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from apps.harness.books import open_books
from apps.tenders.local.archive_story import ArchiveStory
from apps.tenders.local.books import Books, is_wanted_by
from apps.tenders.local.push_server import AcceptedPush
from apps.tenders.tests.conftest import run_command, running
from sqlalchemy import delete, select, update
from sqlalchemy.orm import Session

from holdfast import Holdfast
from holdfast_archive import Archive
from tenders.generated import generate_device, generate_tender
from tenders.models import Delivery, Installation, NotificationEvent, Tender

STORY = ("apps.tenders.local", "--headless", "--exit", "--tenders", "12", "--devices", "60")


@pytest.mark.timeout(600)
async def test_the_story_ends_well_though_a_worker_is_killed(tmp_path: Path) -> None:
    async with running(tmp_path, "mysql://no", *STORY, "--kill") as story:
        code = await story.wait()
    out = story.log.read_text()
    assert code == 0, out + (tmp_path / "tenders-demo" / "log").read_text()[-5_000:]
    assert "killed (-9) while it held" in out
    assert "0 missing · 0 doubled · 0 wrong" in out
    assert re.search(r"archive: \d+ periods \(\d+ dropped\), \d+ rows in files", out)
    assert list((tmp_path / "tenders-demo" / "archive").rglob("*.parquet"))
    for what in ("page", "dashboard", "sources", "push service", "archive"):
        assert f"✓ {what}" in out
    check_that_the_books_find_what_is_wrong(tmp_path / "tenders-demo")
    check_that_the_story_finds_a_damaged_file(tmp_path / "tenders-demo")


def check_that_the_books_find_what_is_wrong(home: Path) -> None:
    """Break what the story left, one thing at a time, and look into the books each time."""
    pushes = home / "pushes"
    kept = pushes.read_bytes()
    listed = [generate_tender(each, datetime.now(UTC)) for each in range(12)]
    lines = kept.splitlines(keepends=True)
    first = msgspec.json.decode(lines[0], type=AcceptedPush)

    def faults(database: str) -> set[str]:
        engine = open_books(f"sqlite:///{home / database}")
        found = Books(engine, pushes, listed).faults
        engine.dispose()
        return {each.kind for each in found}

    assert faults("tenders.db") == set()
    pushes.write_bytes(b"".join(lines[1:]))
    of_the_first = [each for each in lines[1:] if first.ticket.encode() in each]
    assert of_the_first == []
    if not any(first.token.encode() in each for each in lines[1:]):
        assert faults("tenders.db") == {"missing"}
    stranger = msgspec.structs.replace(first, token="ExponentPushToken[stranger]")
    pushes.write_bytes(kept + msgspec.json.encode(stranger) + b"\n")
    assert faults("tenders.db") == {"wrong"}
    pushes.write_bytes(kept + lines[-1] * 9)
    assert faults("tenders.db") == {"doubled"}
    pushes.write_bytes(kept)
    for name, statement in {
        "lost": delete(Delivery).where(
            Delivery.id == select(Delivery.id).limit(1).scalar_subquery()
        ),
        "open": update(Delivery).values(status="pending"),
        "gone": delete(Tender),
    }.items():
        shutil.copy(home / "tenders.db", home / f"{name}.db")
        engine = open_books(f"sqlite:///{home / name}.db")
        with Session(engine) as session, session.begin():
            newest = select(NotificationEvent.id).order_by(NotificationEvent.id.desc()).limit(1)
            if name == "lost":
                statement = delete(Delivery).where(Delivery.event_id.in_(newest))
            session.execute(statement)
        engine.dispose()
        assert "missing" in faults(f"{name}.db"), name


def check_that_the_story_finds_a_damaged_file(home: Path) -> None:
    """Damage a file in the bucket that the story left, and let the story check it again."""
    url, bucket = f"sqlite:///{home / 'tenders.db'}", home / "archive"
    engine = open_books(url)
    with closing(Holdfast(url)) as jobs:
        story = ArchiveStory(jobs, engine, bucket, print)
        manifests = Archive(lambda: jobs.database, str(bucket)).list()
        moved = Counter[str]()
        for each in manifests:
            moved[each.source] += each.rows
        assert list(story._check(manifests, moved)) == []
        key = manifests[0].objects[0].key
        content = (bucket / key).read_bytes()
        (bucket / key).write_bytes(content[:100] + b"\x00\x01" + content[102:])
        (fault,) = story._check(manifests, moved)
    engine.dispose()
    assert (fault.kind, key in fault.text) == ("missing", True)


def test_the_books_judge_preferences_themselves() -> None:
    tender = generate_tender(1, datetime.now(UTC))
    device = generate_device(1)
    everything = device.preference
    everything.regions = everything.categories = everything.kinds = None
    everything.amount_min = everything.amount_max = None
    everything.is_enabled = True
    assert is_wanted_by(everything, tender)
    assert is_wanted_by(everything, replace(tender, amount=None))
    everything.amount_min = (tender.amount or 0) + 1
    assert not is_wanted_by(everything, tender)
    everything.amount_min = 1
    assert not is_wanted_by(everything, replace(tender, amount=None))
    everything.regions = frozenset({"none"})
    assert not is_wanted_by(everything, tender)
    assert isinstance(device.installation, Installation)


async def test_the_bench_prints_its_figures(tmp_path: Path) -> None:
    few = ("--tenders", "5", "--devices", "100")
    code, out, err = await run_command(tmp_path, "sqlite:///unused.db", "tenders", "bench", *few)
    assert code == 0, err
    assert out.startswith("5 tenders × 100 devices matched in ")
    assert "pairs/s" in out
    assert "MiB" in out
