"""The tables. Amounts are whole pesos; regions, categories and kinds are the codes that the buyers use."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, ClassVar
from uuid import UUID, uuid4

from sqlalchemy import (
    BigInteger,
    DateTime,
    Dialect,
    Enum,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    TypeDecorator,
    UniqueConstraint,
    text,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from sqlalchemy.types import TypeEngine

from holdfast_leases import to_datetime, to_instant

NEW_IDS = {"sqlite_autoincrement": True}
"""Without it, SQLite gives the ids of rows that were moved away to new rows."""

LONG = BigInteger().with_variant(Integer, "sqlite")
"""A 64-bit number; SQLite gives only INTEGER keys numbers by itself."""


class Moment(TypeDecorator[datetime]):
    """A point in time: timestamptz, or microseconds on SQLite, as Holdfast keeps them and as leases need them."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """Return how the database keeps it."""
        return dialect.type_descriptor(
            Integer() if dialect.name == "sqlite" else DateTime(timezone=True)
        )

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> Any:
        """Return what the driver takes."""
        return to_instant(value) if value is not None and dialect.name == "sqlite" else value

    def process_result_value(self, value: Any, dialect: Dialect) -> datetime | None:
        """Return the time as UTC."""
        if value is None:
            return None
        if dialect.name == "sqlite":
            return to_datetime(int(value))
        return value.astimezone(UTC) if isinstance(value, datetime) else None


class Codes(TypeDecorator[frozenset[str]]):
    """A set of codes in one column, as in |05|13|: found by LIKE, in any database, without a second table."""

    impl = String
    cache_ok = True

    def process_bind_param(self, value: frozenset[str] | None, dialect: Dialect) -> str | None:
        """Return the text of a set. Raises: ValueError for a code with a bar in it."""
        if value is None:
            return None
        if any("|" in each for each in value):
            raise ValueError(f"a code cannot have a bar in it: {sorted(value)}")
        return f"|{'|'.join(sorted(value))}|"

    def process_result_value(self, value: Any, dialect: Dialect) -> frozenset[str] | None:
        """Return the set of a text."""
        return None if value is None else frozenset(str(value).strip("|").split("|"))


class Base(DeclarativeBase):
    """The application's tables, with constraint names that Alembic can find again."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(column_0_label)s",
            "uq": "uq_%(table_name)s_%(column_0_name)s",
            "fk": "fk_%(table_name)s_%(column_0_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map: ClassVar[dict[Any, Any]] = {
        datetime: Moment,
        frozenset[str]: Codes,
        StrEnum: Enum(
            StrEnum,
            native_enum=False,
            length=16,
            values_callable=lambda kind: [each.value for each in kind],
        ),
    }


class DeliveryStatus(StrEnum):
    """How far a notification is; the last three are final."""

    PENDING = "pending"
    RETRYABLE = "retryable"
    SENT = "sent"
    OK = "ok"
    FAILED = "failed"
    INVALID = "invalid"


def _now() -> datetime:
    return datetime.now(UTC)


class RegisteredCode(Base):
    """A tender's code, claimed once: a table that is partitioned by month cannot keep codes unique itself."""

    __tablename__ = "tender_registry"

    code: Mapped[str] = mapped_column(primary_key=True)
    tender_id: Mapped[UUID]
    claimed_at: Mapped[datetime] = mapped_column(default=_now)


class Tender(Base):
    """A public tender. What neither source knows is NULL; PostgreSQL keeps a partition for each month."""

    __tablename__ = "tenders"
    __table_args__ = ({"postgresql_partition_by": "RANGE (published_at)"},)

    id: Mapped[UUID] = mapped_column(primary_key=True, default=uuid4)
    published_at: Mapped[datetime] = mapped_column(primary_key=True)
    code: Mapped[str] = mapped_column(index=True)
    title: Mapped[str]
    description: Mapped[str | None]
    buyer: Mapped[str | None]
    region: Mapped[str | None]
    category: Mapped[str | None]
    kind: Mapped[str | None]
    amount: Mapped[int | None] = mapped_column(BigInteger)
    closes_at: Mapped[datetime | None]
    sources: Mapped[str]
    is_notified: Mapped[bool] = mapped_column(default=False)
    notified_at: Mapped[datetime | None]
    created_at: Mapped[datetime] = mapped_column(default=_now)


class Installation(Base):
    """The app on a device; one that the push service does not know any more is switched off."""

    __tablename__ = "device_installations"

    id: Mapped[UUID] = mapped_column(primary_key=True, default=uuid4)
    push_token: Mapped[str] = mapped_column(unique=True)
    platform: Mapped[str]
    is_active: Mapped[bool] = mapped_column(default=True)
    deactivated_at: Mapped[datetime | None]
    deactivated_because: Mapped[str | None]
    created_at: Mapped[datetime] = mapped_column(default=_now)


class Preference(Base):
    """What an installation wants to hear of; NULL excludes nothing. `tenders.matching` reads it."""

    __tablename__ = "notification_preferences"

    installation_id: Mapped[UUID] = mapped_column(
        ForeignKey("device_installations.id"), primary_key=True
    )
    is_enabled: Mapped[bool] = mapped_column(default=True)
    regions: Mapped[frozenset[str] | None]
    categories: Mapped[frozenset[str] | None]
    kinds: Mapped[frozenset[str] | None]
    amount_min: Mapped[int | None] = mapped_column(BigInteger)
    amount_max: Mapped[int | None] = mapped_column(BigInteger)


class NotificationEvent(Base):
    """Something to notify devices of. It outlives the tender's row, which moves to the archive."""

    __tablename__ = "notification_events"
    __table_args__ = (UniqueConstraint("kind", "tender_id"), NEW_IDS)

    id: Mapped[int] = mapped_column(LONG, primary_key=True)
    kind: Mapped[str]
    tender_id: Mapped[UUID]
    tender_published_at: Mapped[datetime]
    created_at: Mapped[datetime] = mapped_column(default=_now)


DUE = "status in ('pending', 'retryable')"
SENT = "status = 'sent'"


def only(condition: str) -> dict[str, Any]:
    """Return the options of an index on some rows."""
    return {"postgresql_where": text(condition), "sqlite_where": text(condition)}


class Delivery(Base):
    """One event on its way to one installation: its state, and the worker that is busy with it."""

    __tablename__ = "notification_deliveries"
    __table_args__ = (
        UniqueConstraint("event_id", "installation_id"),
        # A queue's index has no more rows than the queue, and gives them in its order.
        Index("ix_notification_deliveries_due", "id", **only(DUE)),
        Index("ix_notification_deliveries_sent", "id", **only(SENT)),
        Index("ix_notification_deliveries_lock_token", "lock_token"),
        Index("ix_notification_deliveries_completed_at", "completed_at"),
        NEW_IDS,
    )

    id: Mapped[int] = mapped_column(LONG, primary_key=True)
    event_id: Mapped[int] = mapped_column(ForeignKey("notification_events.id"))
    installation_id: Mapped[UUID] = mapped_column(ForeignKey("device_installations.id"), index=True)
    status: Mapped[DeliveryStatus] = mapped_column(default=DeliveryStatus.PENDING)
    provider: Mapped[str] = mapped_column(default="expo")
    attempt_count: Mapped[int] = mapped_column(default=0)
    next_attempt_at: Mapped[datetime | None] = mapped_column(default=_now)
    locked_by: Mapped[str | None]
    lock_token: Mapped[str | None]
    locked_until: Mapped[datetime | None]
    sent_to: Mapped[str | None]
    provider_ticket_id: Mapped[str | None]
    provider_receipt_id: Mapped[str | None]
    receipt_count: Mapped[int] = mapped_column(default=0)
    next_receipt_at: Mapped[datetime | None]
    last_error_code: Mapped[str | None]
    last_error_message: Mapped[str | None]
    sent_at: Mapped[datetime | None]
    completed_at: Mapped[datetime | None]
    created_at: Mapped[datetime] = mapped_column(default=_now)
    updated_at: Mapped[datetime] = mapped_column(default=_now)
