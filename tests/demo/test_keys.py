"""The demo in a terminal: its keys, its page, and how it ends."""

import os
import signal
from pathlib import Path

import httpx
import psutil

from holdfast.cli.exit_codes import Exit
from tests.support.terminal import PATIENCE_S, Terminal

QUICK = ("--rate", "100", "--lease", "1500ms", "--port", "0")


def test_keys_kill_break_pause_and_order(tmp_path: Path) -> None:
    with Terminal(tmp_path, "--orders", "30", *QUICK) as terminal:
        terminal.wait_for(r"worker w-1 +4 slots · lease 2 s")
        terminal.wait_for(r"\[k\] kill -9 the worker")
        terminal.wait_for(r" [1-9]\d*/30 ")
        terminal.press("k")
        terminal.wait_for("w-1 killed")
        terminal.wait_for(r"\d+ jobs? recovered after \d+\.\d s · 0 lost · 0 paid twice")
        terminal.wait_for("30 of 30 orders paid · 0 lost · 0 paid twice")
        terminal.press("f")
        terminal.wait_for("payments fail")
        terminal.press("o")
        terminal.wait_for("/130 ")
        terminal.press("f")
        terminal.wait_for("works again")
        terminal.press("p")
        terminal.wait_for(r"\[p\] resume")
        terminal.press("p")
        terminal.wait_for(r"\[p\] pause")
        terminal.wait_for("130 of 130 orders paid · 0 lost · 0 paid twice")
        terminal.press("q")
        assert terminal.end() == 0


def test_orders_flow_until_you_quit_so_that_every_kill_hits_something(tmp_path: Path) -> None:
    with Terminal(tmp_path, *QUICK) as terminal:
        terminal.wait_for(r" [3-9]\d\d/\d+ ")
        for worker in ("w-1", "w-2"):
            terminal.press("k")
            terminal.wait_for(rf"{worker} killed in the middle of \d+ payments?; it held \d+ jobs?")
            terminal.wait_for(r"\d+ jobs? recovered after \d+\.\d s · 0 lost · 0 paid twice")
        assert {int(each) for each in terminal.find(r"running (\d+)")} <= set(range(5))
        terminal.press("q")
        assert terminal.end() == 0


def test_a_small_terminal_keeps_the_way_out(tmp_path: Path) -> None:
    with Terminal(tmp_path, "--orders", "1", *QUICK, size=(24, 50)) as terminal:
        terminal.wait_for(r"\[q\] quit")
        terminal.press("q")
        assert terminal.end() == 0


def test_the_page_shows_the_shop_and_kills_its_worker(tmp_path: Path) -> None:
    with Terminal(tmp_path, "--orders", "30", *QUICK) as terminal:
        address = terminal.wait_for(r"http://127\.0\.0\.1:\d+")
        terminal.wait_for(r" [1-9]\d*/30 ")
        with httpx.Client(base_url=address) as browser:
            for path in ("/", "/shop.css", "/shop.js", "/holdfast/", "/holdfast/jobs"):
                found = browser.get(path)
                assert found.status_code == 200
                assert found.headers["content-security-policy"].startswith("default-src 'none'")
            assert browser.post("/do/nothing").status_code == 404
            elsewhere = {"sec-fetch-site": "cross-site"}
            assert browser.post("/do/kill", headers=elsewhere).status_code == 403
            assert browser.post("/do/kill").status_code == 303
            terminal.wait_for("w-1 killed")
            terminal.wait_for("30 of 30 orders paid")
            state = browser.get("/state").json()
        terminal.press("q")
        assert terminal.end() == 0
    assert (state["paid"], state["lost"], state["paid_twice"]) == (30, 0, 0)
    assert state["worker"] == "w-2"


def test_one_interrupt_lets_the_worker_finish_and_leaves_nobody(tmp_path: Path) -> None:
    with Terminal(tmp_path, "--orders", "500", *QUICK) as terminal:
        terminal.wait_for(r" [1-9]\d*/500 ")
        worker = terminal.worker()
        os.kill(terminal.pid, signal.SIGINT)
        terminal.wait_for("stopping: the worker finishes its jobs")
        terminal.wait_for(r"\d+ of \d+ orders paid · 0 lost · 0 paid twice")
        assert terminal.end() == 0
    assert not worker.is_running()
    log = (tmp_path / "holdfast-demo.log").read_text()
    assert "worker_stopped" in log
    assert "abandoned=0" in log


def test_a_second_interrupt_ends_it_now(tmp_path: Path) -> None:
    with Terminal(tmp_path, "--orders", "500", *QUICK) as terminal:
        terminal.wait_for(r" [1-9]\d*/500 ")
        worker = terminal.worker()
        worker.suspend()
        os.kill(terminal.pid, signal.SIGINT)
        terminal.wait_for("stopping")
        os.kill(terminal.pid, signal.SIGINT)
        assert terminal.end() == Exit.INTERRUPTED
    assert not worker.is_running()


def test_a_killed_demo_leaves_no_worker_behind(tmp_path: Path) -> None:
    with Terminal(tmp_path, "--orders", "500", *QUICK) as terminal:
        terminal.wait_for(r" [1-9]\d*/500 ")
        worker = terminal.worker()
        terminal.kill()
        gone, _ = psutil.wait_procs([worker], timeout=PATIENCE_S)
        assert gone
