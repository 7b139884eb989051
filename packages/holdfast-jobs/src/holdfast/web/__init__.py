"""The HTTP API and the dashboard: one ASGI application, served or mounted. It decides nothing; the service does."""
