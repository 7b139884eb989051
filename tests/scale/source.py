"""The service whose events the others take: it publishes orders, and relays them to the stream."""

from __future__ import annotations

import os

from holdfast import Holdfast
from holdfast_streams import JetStream, add_streams

app = Holdfast()
streams = add_streams(app)
streams.relay("order.*", to=JetStream(os.environ["SCALE_NATS"], stream="ORDERS"))
