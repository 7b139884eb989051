"""A worker is killed in the middle of a payment, and the page shows how the job comes through."""

import os
from pathlib import Path

from playwright.sync_api import expect

from holdfast.app import Holdfast
from tests.cli.processes import Command
from tests.e2e.shop import GATE_VARIABLE
from tests.e2e.tabs import OpenPage

ROOT = Path(__file__).parents[2]


def test_a_killed_workers_job_is_seen_to_recover(
    app: Holdfast, url: str, tmp_path: Path, open_page: OpenPage
) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    env = {"HOLDFAST_URL": url, GATE_VARIABLE: str(gate)}
    words = ("worker", "tests.e2e.shop:app", "--name")
    with app.transaction() as tx:
        chain = app.start(tx, "order.charge", {"order": 1})
    page = open_page(f"/jobs/{chain.id}")
    sentence, state = page.locator(".sentence"), page.locator(".page-head .chip")
    expect(sentence).to_contain_text("No live worker handles order.charge")
    with Command(*words, "doomed", cwd=ROOT, env=env) as doomed:
        expect(sentence).to_contain_text("Leased by doomed")
        doomed.process.kill()
    with Command(*words, "heir", cwd=ROOT, env=env):
        expect(sentence).to_contain_text("Leased by heir")
        expect(page.locator("main")).to_contain_text("1 worker died")
        gate.write_text("paid")
        expect(state).to_have_text("completed")
    expect(page.get_by_label("Output")).to_have_text('"paid"')
