"""Tables of the first release."""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from alembic import op

from tenders.models import LONG, NEW_IDS, Codes, Moment

revision: str = "0001"
down_revision: str | None = None
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

TABLES = (
    "tender_registry",
    "tenders",
    "device_installations",
    "notification_preferences",
    "notification_events",
    "notification_deliveries",
)
ARCHIVED = ("tenders", "notification_deliveries")

# Attached rather than created in place: that needs no lock that readers and writers of the other months wait for.
CREATE_MONTH = """
create function create_tenders_month(month date) returns void language plpgsql as $$
declare
  name text := format('tenders_%s', to_char(month, 'YYYY_MM'));
begin
  perform pg_advisory_xact_lock(hashtext('create_tenders_month'));
  if to_regclass(name) is null then
    execute format('create table %I (like tenders including all)', name);
    execute format(
      'alter table tenders attach partition %I for values from (%L) to (%L)', name,
      month::timestamp at time zone 'UTC', (month + interval '1 month')::timestamp at time zone 'UTC');
  end if;
end $$"""


def upgrade() -> None:
    on_postgres = op.get_bind().dialect.name == "postgresql"
    _create_tenders()
    _create_installations()
    _create_notifications()
    if on_postgres:
        op.execute(CREATE_MONTH)
        op.execute("create schema archive")
    for name in ARCHIVED:
        _create_copy(name, on_postgres)


def downgrade() -> None:
    on_postgres = op.get_bind().dialect.name == "postgresql"
    if on_postgres:
        op.execute("drop function create_tenders_month")
    for name in ARCHIVED:
        target, schema = _place(name, on_postgres)
        op.drop_table(target, schema=schema)
    if on_postgres:
        op.execute("drop schema archive")
    for name in reversed(TABLES):
        op.drop_table(name)


def _create_tenders() -> None:
    op.create_table(
        "tender_registry",
        sa.Column("code", sa.String(), nullable=False),
        sa.Column("tender_id", sa.Uuid(), nullable=False),
        sa.Column("claimed_at", Moment(), nullable=False),
        sa.PrimaryKeyConstraint("code", name="pk_tender_registry"),
    )
    op.create_table(
        "tenders",
        *_columns_of("tenders"),
        sa.PrimaryKeyConstraint("id", "published_at", name="pk_tenders"),
        postgresql_partition_by="RANGE (published_at)",
    )
    op.create_index("ix_tenders_code", "tenders", ["code"])


def _create_installations() -> None:
    op.create_table(
        "device_installations",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("push_token", sa.String(), nullable=False),
        sa.Column("platform", sa.String(), nullable=False),
        sa.Column("is_active", sa.Boolean(), nullable=False),
        sa.Column("deactivated_at", Moment(), nullable=True),
        sa.Column("deactivated_because", sa.String(), nullable=True),
        sa.Column("created_at", Moment(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_device_installations"),
        sa.UniqueConstraint("push_token", name="uq_device_installations_push_token"),
    )
    op.create_table(
        "notification_preferences",
        sa.Column("installation_id", sa.Uuid(), nullable=False),
        sa.Column("is_enabled", sa.Boolean(), nullable=False),
        sa.Column("regions", Codes(), nullable=True),
        sa.Column("categories", Codes(), nullable=True),
        sa.Column("kinds", Codes(), nullable=True),
        sa.Column("amount_min", sa.BigInteger(), nullable=True),
        sa.Column("amount_max", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(
            ["installation_id"],
            ["device_installations.id"],
            name="fk_notification_preferences_installation_id",
        ),
        sa.PrimaryKeyConstraint("installation_id", name="pk_notification_preferences"),
    )


def _create_notifications() -> None:
    op.create_table(
        "notification_events",
        sa.Column("id", LONG, nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("tender_id", sa.Uuid(), nullable=False),
        sa.Column("tender_published_at", Moment(), nullable=False),
        sa.Column("created_at", Moment(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_notification_events"),
        sa.UniqueConstraint("kind", "tender_id", name="uq_notification_events_kind"),
        **NEW_IDS,
    )
    op.create_table(
        "notification_deliveries",
        *_columns_of("notification_deliveries"),
        sa.ForeignKeyConstraint(
            ["event_id"], ["notification_events.id"], name="fk_notification_deliveries_event_id"
        ),
        sa.ForeignKeyConstraint(
            ["installation_id"],
            ["device_installations.id"],
            name="fk_notification_deliveries_installation_id",
        ),
        sa.PrimaryKeyConstraint("id", name="pk_notification_deliveries"),
        sa.UniqueConstraint(
            "event_id", "installation_id", name="uq_notification_deliveries_event_id"
        ),
        **NEW_IDS,
    )
    for name, columns in {
        "ix_notification_deliveries_lock_token": ["lock_token"],
        "ix_notification_deliveries_completed_at": ["completed_at"],
        "ix_notification_deliveries_installation_id": ["installation_id"],
    }.items():
        op.create_index(name, "notification_deliveries", columns)
    for name, condition in {
        "ix_notification_deliveries_due": "status in ('pending', 'retryable')",
        "ix_notification_deliveries_sent": "status = 'sent'",
    }.items():
        rows = sa.text(condition)
        op.create_index(
            name, "notification_deliveries", ["id"], postgresql_where=rows, sqlite_where=rows
        )


def _create_copy(name: str, on_postgres: bool) -> None:
    """Create the table that old rows move to: the same columns, and nothing that refers to rows which stay."""
    target, schema = _place(name, on_postgres)
    columns = _columns_of(name)
    for column in columns:
        column.autoincrement = False
    keys = {"tenders": ["id", "published_at"], "notification_deliveries": ["id"]}[name]
    op.create_table(target, *columns, sa.PrimaryKeyConstraint(*keys), schema=schema)


def _place(name: str, on_postgres: bool) -> tuple[str, str | None]:
    return (name, "archive") if on_postgres else (f"archive_{name}", None)


def _columns_of(name: str) -> list[sa.Column[Any]]:
    if name == "tenders":
        return [
            sa.Column("id", sa.Uuid(), nullable=False),
            sa.Column("published_at", Moment(), nullable=False),
            sa.Column("code", sa.String(), nullable=False),
            sa.Column("title", sa.String(), nullable=False),
            sa.Column("description", sa.String(), nullable=True),
            sa.Column("buyer", sa.String(), nullable=True),
            sa.Column("region", sa.String(), nullable=True),
            sa.Column("category", sa.String(), nullable=True),
            sa.Column("kind", sa.String(), nullable=True),
            sa.Column("amount", sa.BigInteger(), nullable=True),
            sa.Column("closes_at", Moment(), nullable=True),
            sa.Column("sources", sa.String(), nullable=False),
            sa.Column("is_notified", sa.Boolean(), nullable=False),
            sa.Column("notified_at", Moment(), nullable=True),
            sa.Column("created_at", Moment(), nullable=False),
        ]
    return [
        sa.Column("id", LONG, nullable=False),
        sa.Column("event_id", LONG, nullable=False),
        sa.Column("installation_id", sa.Uuid(), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("provider", sa.String(), nullable=False),
        sa.Column("attempt_count", sa.Integer(), nullable=False),
        sa.Column("next_attempt_at", Moment(), nullable=True),
        sa.Column("locked_by", sa.String(), nullable=True),
        sa.Column("lock_token", sa.String(), nullable=True),
        sa.Column("locked_until", Moment(), nullable=True),
        sa.Column("sent_to", sa.String(), nullable=True),
        sa.Column("provider_ticket_id", sa.String(), nullable=True),
        sa.Column("provider_receipt_id", sa.String(), nullable=True),
        sa.Column("receipt_count", sa.Integer(), nullable=False),
        sa.Column("next_receipt_at", Moment(), nullable=True),
        sa.Column("last_error_code", sa.String(), nullable=True),
        sa.Column("last_error_message", sa.String(), nullable=True),
        sa.Column("sent_at", Moment(), nullable=True),
        sa.Column("completed_at", Moment(), nullable=True),
        sa.Column("created_at", Moment(), nullable=False),
        sa.Column("updated_at", Moment(), nullable=False),
    ]
