"""What this package adds: upgrades of a schema in use, the grants of its roles, and the doctor's look at the server."""

from holdfast.extensions import Extension, LazyCommand

EXTENSION = Extension(
    commands={
        "Set up and operate": {
            "grants": LazyCommand(
                "holdfast_postgres.cli",
                "Print what each database role needs for this version, as SQL.",
            )
        }
    },
    replication={"postgresql": "holdfast_postgres.standbys:read_replication"},
    server_checks={"postgresql": "holdfast_postgres.server_checks:check_server"},
    upgrades={"postgresql": "holdfast_postgres.schema_upgrade:apply_migrations"},
)
