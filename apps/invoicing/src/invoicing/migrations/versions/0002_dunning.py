"""Dunning."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0002"
down_revision: str | None = "0001"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    op.create_table(
        "dunnings",
        sa.Column("invoice_id", sa.Uuid(), nullable=False),
        sa.Column("chain_id", sa.Uuid(), nullable=False),
        sa.Column(
            "status",
            sa.Enum(
                "RUNNING", "PAID", "HANDED_OVER", name="dunningstatus", native_enum=False, length=16
            ),
            nullable=False,
        ),
        sa.Column("level", sa.Integer(), nullable=False),
        sa.Column("reminded_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["invoice_id"], ["invoices.id"], name="fk_dunnings_invoice_id"),
        sa.PrimaryKeyConstraint("invoice_id", name="pk_dunnings"),
    )


def downgrade() -> None:
    op.drop_table("dunnings")
