"""Where the shop's effects are seen: lines in files, with the worker that wrote them."""

import os
from pathlib import Path


def record(name, line):
    """Append a line in one write, so that processes do not mix theirs."""
    worker = os.environ.get("SHOP_WORKER", "nobody")
    file = os.open(Path(os.environ["SHOP_HOME"], name), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(file, f"{worker}: {line}\n".encode())
    finally:
        os.close(file)
