"""Prints the keys and numbers that a stream of JetStream has, from a host of its network: `python -m … URL STREAM`."""

from __future__ import annotations

import asyncio
import json
import sys

from holdfast_streams import JetStream
from tests.streams.relay_scene import numbers

if __name__ == "__main__":
    print(json.dumps(asyncio.run(numbers(JetStream(sys.argv[1], stream=sys.argv[2])))))
