"""Revenue."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0003"
down_revision: str | None = "0002"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    op.create_table(
        "revenue",
        sa.Column("tenant_id", sa.Uuid(), nullable=False),
        sa.Column("month", sa.String(), nullable=False),
        sa.Column("issued", sa.Integer(), nullable=False),
        sa.Column("paid", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_revenue_tenant_id"),
        sa.PrimaryKeyConstraint("tenant_id", "month", name="pk_revenue"),
    )


def downgrade() -> None:
    op.drop_table("revenue")
