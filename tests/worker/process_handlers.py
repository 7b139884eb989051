"""Handlers that processes of their own can import."""

import os
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from holdfast.core.errors import Busy, InvalidOption, Permanent, StepsRefused
from holdfast.core.outcome import Cancel, Continue, Snooze
from holdfast.observe.context import current_job
from holdfast.worker.job import Job, SyncJob


def square(job: Job[int]) -> int:
    print("whatever a handler prints is no answer")
    return job.input**2


async def square_async(job: Job[int]) -> int:
    return job.input**2


def fail(job: Job[str]) -> None:
    raise ConnectionError(f"password={job.input}")


def refuse(job: Job[Any]) -> None:
    raise Permanent("never")


def step(job: SyncJob[Any]) -> str:
    try:
        return job.step("one", str, job.input)
    except StepsRefused as error:
        return error.code


def busy(job: Job[Any]) -> None:
    raise Busy("30s")


def later(job: Job[Any]) -> Snooze:
    return Snooze("1h")


def later_by_raising(job: Job[Any]) -> None:
    raise Snooze(at=datetime(2099, 1, 1, tzinfo=UTC))


def go_on(job: Job[int]) -> Continue:
    return Continue("square", job.input)


def go_on_later(job: Job[int]) -> Continue:
    """Say of the successor all that can be said."""
    at = datetime(2100, 1, 1, tzinfo=UTC)
    return Continue("square", job.input, at=at, priority=2, options={"max_attempts": 3})


def die(job: Job[Any]) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def leave(job: Job[Any]) -> None:
    os._exit(7)


def tell(job: Job[str]) -> None:
    """Say how far we are and wait for a word through a pipe."""
    job.progress(0.25, "a quarter")
    Path(job.input).read_text()


def spin(job: Job[str]) -> None:
    """Say through a pipe who we are, then use the processor without ever looking up."""
    Path(job.input).write_text(str(os.getpid()))
    while True:
        pass


def delegate(job: Job[str]) -> None:
    """Have a program do the work; it holds a pipe until it ends."""
    subprocess.run(["sh", "-c", 'exec >"$0"; echo begun; exec sleep 30', job.input], check=True)


def delegate_to_another_session(job: Job[str]) -> None:
    """The same in a session that signals to ours do not reach."""
    command = ["sh", "-c", 'exec >"$0"; echo begun; exec sleep 30', job.input]
    subprocess.run(command, check=True, start_new_session=True)


def delegate_to_an_orphan(job: Job[str]) -> None:
    """The same by a daemon whose parent has ended."""
    daemon = 'exec >"$0"; echo begun; exec sleep 30'
    command = ["setsid", "sh", "-c", f"({daemon}) & exit 0", job.input]
    subprocess.run(command, check=True, start_new_session=True)
    time.sleep(30)  # with the daemon, until both are killed


def listen(job: Job[Any]) -> str:
    return sys.stdin.read()


def shout(job: Job[Any]) -> None:
    job.progress(0.5, "half \ud800")
    raise ValueError("whole \ud800")


def exit_politely(job: Job[Any]) -> None:
    raise SystemExit(3)


def identity(job: Job[Any]) -> int:
    return os.getpid()


def mistake_progress(job: Job[Any]) -> float:
    """Say what is no progress, and go on."""
    job.progress(float("nan"), "a note")
    try:
        job.progress(cast(float, "half"))
    except InvalidOption:
        return 0.5
    return 1.0


def look_around(job: Job[Any]) -> Any:
    """Tell for which job the loggers think they write, and what came of the chains it waited for."""
    context = current_job.get()
    return [context and context.job_id, [each.output for each in job.blockers]]


def withdraw(job: Job[Any]) -> Cancel:
    return Cancel("no \ud800 longer")


def go_on_badly(job: Job[Any]) -> Continue:
    return Continue("square", 1, options={"max_attempts": object()})
