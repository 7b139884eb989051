"""Streams: consumers of the event log, in order, in batches, exactly once in the database."""

from typing import TYPE_CHECKING

from holdfast.extensions import lazy_names

if TYPE_CHECKING:
    from holdfast_streams.brokers import JetStream as JetStream
    from holdfast_streams.brokers import RedisStream as RedisStream
    from holdfast_streams.registration import Streams as Streams
    from holdfast_streams.registration import add_streams as add_streams
    from holdfast_streams.stream_event import StreamEvent as StreamEvent

__getattr__ = lazy_names(
    __name__,
    {
        "brokers": ("JetStream", "RedisStream"),
        "registration": ("Streams", "add_streams"),
        "stream_event": ("StreamEvent",),
    },
)
