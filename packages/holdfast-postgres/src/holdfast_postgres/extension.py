"""What this package adds to the doctor."""

from holdfast.extensions import Extension

EXTENSION = Extension(server_checks={"postgresql": "holdfast_postgres.server_checks:check_server"})
