"""The schemes of URLs for hints and files: which ones a setting accepts, and which module opens them."""

POSTGRES_SCHEMES = ("postgresql", "postgres")
REDIS_SCHEMES = ("redis", "rediss", "unix")
NATS_SCHEMES = ("nats", "tls", "ws", "wss")
FILE_SCHEMES = ("file", "s3")
