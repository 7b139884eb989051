"""A module that takes its time to be imported by a handler's process."""

import sys
import time
from typing import Any

from holdfast.worker.job import Job

if sys.argv[0].endswith("child.py"):
    time.sleep(2)


def quick(job: Job[Any]) -> None: ...
