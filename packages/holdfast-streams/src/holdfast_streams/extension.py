"""What streams add to Holdfast."""

from holdfast.extensions import Extension, LazyCommand

EXTENSION = Extension(
    commands={
        "Inspect and act": {
            "streams": LazyCommand(
                "holdfast_streams.cli",
                "Show consumers and relays of the event log, and their lag; pause, rewind, retry, skip and more.",
            ),
            "inbox": LazyCommand(
                "holdfast_streams.cli",
                "Show inboxes of webhooks and brokers; retry or skip what they parked.",
            ),
        }
    },
    actions={
        "stream.list": "viewer",
        "stream.pause": "operator",
        "stream.resume": "operator",
        "stream.retry": "operator",
        "stream.skip": "operator",
        "stream.rewind": "developer",
        "stream.rebase": "developer",
        "stream.recreate": "developer",
        "stream.remove": "developer",
        "inbox.list": "viewer",
        "inbox.retry": "operator",
        "inbox.skip": "operator",
        "inbox.remove": "developer",
    },
    routes="holdfast_streams.api:ROUTES",
    pages="holdfast_streams.pages:PAGES",
    menu=(("streams", "Streams", "/streams", "m"),),
    sentences={
        "pause_stream": "{name} paused",
        "resume_stream": "{name} resumed",
        "retry_parked": "Parked events of {name} will be tried again",
        "skip_parked": "Parked events of {name} were skipped",
        "rebase_stream": "{name} goes on in a new epoch",
        "recreate_stream": "{name} creates its stream again",
        "retry_inbox": "Parked messages of {name} will be tried again",
        "skip_inbox": "Parked messages of {name} were skipped",
    },
    templates="holdfast_streams",
    checks="holdfast_streams.doctor:CHECKS",
    runners="holdfast_streams.streams_runner:RUNNERS",
    settings="holdfast_streams.settings:GROUPS",
    errors="holdfast_streams.errors",
    events="holdfast_streams.events:EVENTS",
    metrics="holdfast_streams.events:METRICS",
    statements="holdfast_streams",
)
