"""Starts workers under measurement and hears their reports."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from tests.bench.subject import Report, Spec

ROOT = Path(__file__).parents[2]
PATIENCE_S = 30


class Subject:
    """One worker process. Leaving the block ends it, whatever it was doing."""

    def __init__(self, spec: Spec) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.bench.subject", msgspec.json.encode(spec).decode()],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        if self._heard() != "ready":
            self.end()
            raise RuntimeError("the worker under measurement did not start")

    def __enter__(self) -> Subject:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    @property
    def pid(self) -> int:
        """The process's id."""
        return self._process.pid

    def go(self) -> None:
        """Let it work."""
        self._say("go")

    def stop(self) -> None:
        """Tell it to end."""
        self._say("stop")

    def report(self) -> Report:
        """Wait for its end and return what it reports."""
        return msgspec.json.decode(self._heard(), type=Report)

    def end(self) -> None:
        """End the process, by force if need be."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        try:
            self._process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _say(self, text: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{text}\n")
        self._process.stdin.flush()

    def _heard(self) -> str:
        assert self._process.stdout is not None
        line: str = self._process.stdout.readline()
        return line.strip()


def drain(spec: Spec) -> Report:
    """Run one worker until its jobs are done."""
    with Subject(spec) as subject:
        subject.go()
        return subject.report()


def rate(reports: Sequence[Report]) -> float:
    """Jobs a second of workers that worked at the same time."""
    begun = min(each.begun_at for each in reports)
    ended = max(each.ended_at for each in reports)
    return sum(each.processed for each in reports) / (ended - begun)
