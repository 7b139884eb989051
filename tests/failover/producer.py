"""Starts jobs from several threads and repeats each, with the same id, until it is acknowledged.

`python -m tests.failover.producer URL LOG PER_SECOND` writes "time id" for every acknowledged start, until its
standard input closes.
"""

import os
import sys
import threading
import time

from holdfast import Holdfast, errors

THREADS = 4
REPEAT_S = 0.02
END_S = 5.0


def produce(app: Holdfast, log: int, interval_s: float, ended: threading.Event) -> None:
    """Start one job after another."""
    due = time.monotonic()
    while not ended.is_set():
        id = app.new_id()
        while not ended.is_set():
            try:
                with app.transaction() as tx:
                    app.start(tx, "work", id=id)
            except errors.HoldfastError:
                # Whether it was committed is not known, and the same id makes that matter not.
                ended.wait(REPEAT_S)
            else:
                os.write(log, f"{time.time():.6f} {id}\n".encode())
                break
        due = max(due + interval_s, time.monotonic())
        ended.wait(due - time.monotonic())


def main(url: str, file: str, per_second: str) -> None:
    app = Holdfast(url, open_types=True)
    log = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    ended = threading.Event()
    threads = [
        threading.Thread(target=produce, args=[app, log, THREADS / float(per_second), ended])
        for _ in range(THREADS)
    ]
    for each in threads:
        each.daemon = True
        each.start()
    sys.stdin.buffer.read()
    ended.set()
    for each in threads:
        each.join(END_S)


if __name__ == "__main__":
    main(*sys.argv[1:])
