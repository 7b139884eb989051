"""The HTTP API, and beside it the dashboard that is installed: one ASGI application, served or mounted."""
