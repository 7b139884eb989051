"""Streams: consumers of the event log, and the inbox for messages of other systems, each once in the database."""

from typing import TYPE_CHECKING

from holdfast.extensions import lazy_names

if TYPE_CHECKING:
    from holdfast_streams.brokers import FastStreamTarget as FastStreamTarget
    from holdfast_streams.brokers import JetStream as JetStream
    from holdfast_streams.brokers import RedisStream as RedisStream
    from holdfast_streams.inbox.django_view import inbox_view as inbox_view
    from holdfast_streams.inbox.flask_blueprint import inbox_blueprint as inbox_blueprint
    from holdfast_streams.inbox.message import Message as Message
    from holdfast_streams.inbox.message import WebhookRequest as WebhookRequest
    from holdfast_streams.inbox.starlette_routes import inbox_routes as inbox_routes
    from holdfast_streams.inbox.webhook_signatures import github_signature as github_signature
    from holdfast_streams.inbox.webhook_signatures import hmac_signature as hmac_signature
    from holdfast_streams.inbox.webhook_signatures import standard_signature as standard_signature
    from holdfast_streams.inbox.webhook_signatures import stripe_signature as stripe_signature
    from holdfast_streams.registration import Streams as Streams
    from holdfast_streams.registration import add_streams as add_streams
    from holdfast_streams.stream_event import StreamEvent as StreamEvent

__getattr__ = lazy_names(
    __name__,
    {
        "brokers": ("FastStreamTarget", "JetStream", "RedisStream"),
        "inbox.django_view": ("inbox_view",),
        "inbox.flask_blueprint": ("inbox_blueprint",),
        "inbox.message": ("Message", "WebhookRequest"),
        "inbox.webhook_signatures": (
            "github_signature",
            "hmac_signature",
            "standard_signature",
            "stripe_signature",
        ),
        "inbox.starlette_routes": ("inbox_routes",),
        "registration": ("Streams", "add_streams"),
        "stream_event": ("StreamEvent",),
    },
)
