"""A real PostgreSQL whose clock a test can set, where the machine has libfaketime."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.absent import skip_because_absent
from tests.support.installation import embedded_binaries
from tests.support.postgres import prepare_template
from tests.support.process import QUICK_LOGIN_ROUNDS, PostgresProcess

LIBRARIES = ("/usr/lib/*/faketime/libfaketime.so.1", "/usr/local/lib/faketime/libfaketime.so.1")


def fake_time_library() -> Path:
    """Return the library that changes a program's clock; skip the test where there is none."""
    found = [each for place in LIBRARIES for each in Path("/").glob(place.lstrip("/"))]
    if not found:
        skip_because_absent("libfaketime", "On Debian or Ubuntu: apt-get install faketime")
    return found[0]


class WrongClock:
    """How far a server's clock is from the right time; the server notices at its next look."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.set(0)

    def set(self, seconds: int) -> None:
        """Set the clock so far ahead."""
        # Renamed, because a server that reads half of it would have no time at all.
        new = self._file.with_suffix(".new")
        new.write_text(f"{seconds:+d}s")
        new.rename(self._file)


@contextmanager
def serve_with_clock(folder: Path) -> Iterator[tuple[PostgresProcess, WrongClock]]:
    """Run a prepared server whose clock can be set; what waits inside it goes by the monotonic clock as ever."""
    clock = WrongClock(folder / "clock")
    environment = {
        "LD_PRELOAD": str(fake_time_library()),
        "FAKETIME_TIMESTAMP_FILE": str(folder / "clock"),
        "FAKETIME_NO_CACHE": "1",
        "DONT_FAKE_MONOTONIC": "1",
    }
    process = PostgresProcess(
        embedded_binaries(), login_rounds=QUICK_LOGIN_ROUNDS, environment=environment
    )
    with process:
        prepare_template(process.url)
        yield process, clock
