"""The schemes of URLs for hints and files: which ones a setting accepts, and what opens them."""

POSTGRES_SCHEMES = ("postgresql", "postgres")
FILE_SCHEMES = ("file", "s3")
BROKER_EXTRAS = {
    **dict.fromkeys(("redis", "rediss", "unix"), "redis"),
    **dict.fromkeys(("nats", "tls", "ws", "wss"), "nats"),
}
"""Schemes of hints that need an extra, and which."""
