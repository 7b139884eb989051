"""Tables of the first release."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0001"
down_revision: str | None = None
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

TABLES = (
    "tenants",
    "class_billing_runs",
    "classes",
    "customers",
    "expenses",
    "files",
    "tax_snapshots",
    "class_enrolments",
    "invoices",
    "documents",
    "email_deliveries",
    "invoice_lines",
    "reminders",
)


def upgrade() -> None:
    op.create_table(
        "tenants",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("address", sa.String(), nullable=False),
        sa.Column("tax_id", sa.String(), nullable=False),
        sa.Column("iban", sa.String(), nullable=False),
        sa.Column("currency", sa.String(), nullable=False),
        sa.Column("logo_svg", sa.String(), nullable=False),
        sa.Column("color", sa.String(), nullable=False),
        sa.Column("token_sha256", sa.String(), nullable=False),
        sa.Column("invoices_numbered", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_tenants"),
        sa.UniqueConstraint("token_sha256", name="uq_tenants_token_sha256"),
    )
    op.create_table(
        "class_billing_runs",
        sa.Column("tenant_id", sa.Uuid(), nullable=False),
        sa.Column("month", sa.String(), nullable=False),
        sa.Column("invoices", sa.Integer(), nullable=False),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["tenant_id"], ["tenants.id"], name="fk_class_billing_runs_tenant_id"
        ),
        sa.PrimaryKeyConstraint("tenant_id", "month", name="pk_class_billing_runs"),
    )
    op.create_table(
        "classes",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("tenant_id", sa.Uuid(), nullable=False),
        sa.Column("title", sa.String(), nullable=False),
        sa.Column("monthly_price", sa.Integer(), nullable=False),
        sa.Column("tax_rate", sa.Integer(), nullable=False),
        sa.Column("starts_on", sa.Date(), nullable=False),
        sa.Column("ends_on", sa.Date(), nullable=True),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_classes_tenant_id"),
        sa.PrimaryKeyConstraint("id", name="pk_classes"),
    )
    op.create_index("ix_classes_tenant_id", "classes", ["tenant_id"])

    op.create_table(
        "customers",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("tenant_id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("email", sa.String(), nullable=False),
        sa.Column("address", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_customers_tenant_id"),
        sa.PrimaryKeyConstraint("id", name="pk_customers"),
    )
    op.create_index("ix_customers_tenant_id", "customers", ["tenant_id"])

    op.create_table(
        "expenses",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("tenant_id", sa.Uuid(), nullable=False),
        sa.Column("description", sa.String(), nullable=False),
        sa.Column("spent_on", sa.Date(), nullable=False),
        sa.Column("net", sa.Integer(), nullable=False),
        sa.Column("tax", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_expenses_tenant_id"),
        sa.PrimaryKeyConstraint("id", name="pk_expenses"),
    )
    op.create_index("ix_expenses_tenant_id", "expenses", ["tenant_id"])

    op.create_table(
        "files",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("tenant_id", sa.Uuid(), nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("content_type", sa.String(), nullable=False),
        sa.Column("size", sa.Integer(), nullable=False),
        sa.Column("sha256", sa.String(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_files_tenant_id"),
        sa.PrimaryKeyConstraint("id", name="pk_files"),
        sa.UniqueConstraint("key", name="uq_files_key"),
    )
    op.create_index("ix_files_tenant_id", "files", ["tenant_id"])

    op.create_table(
        "tax_snapshots",
        sa.Column("tenant_id", sa.Uuid(), nullable=False),
        sa.Column("quarter", sa.String(), nullable=False),
        sa.Column("expenses", sa.Integer(), nullable=False),
        sa.Column("net", sa.Integer(), nullable=False),
        sa.Column("tax", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_tax_snapshots_tenant_id"),
        sa.PrimaryKeyConstraint("tenant_id", "quarter", name="pk_tax_snapshots"),
    )
    op.create_table(
        "class_enrolments",
        sa.Column("class_id", sa.Uuid(), nullable=False),
        sa.Column("customer_id", sa.Uuid(), nullable=False),
        sa.ForeignKeyConstraint(["class_id"], ["classes.id"], name="fk_class_enrolments_class_id"),
        sa.ForeignKeyConstraint(
            ["customer_id"], ["customers.id"], name="fk_class_enrolments_customer_id"
        ),
        sa.PrimaryKeyConstraint("class_id", "customer_id", name="pk_class_enrolments"),
    )
    op.create_table(
        "invoices",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("tenant_id", sa.Uuid(), nullable=False),
        sa.Column("customer_id", sa.Uuid(), nullable=False),
        sa.Column("number", sa.String(), nullable=False),
        sa.Column("issued_on", sa.Date(), nullable=False),
        sa.Column("due_on", sa.Date(), nullable=False),
        sa.Column(
            "status",
            sa.Enum("OPEN", "PAID", name="invoicestatus", native_enum=False, length=16),
            nullable=False,
        ),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["customer_id"], ["customers.id"], name="fk_invoices_customer_id"),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_invoices_tenant_id"),
        sa.PrimaryKeyConstraint("id", name="pk_invoices"),
        sa.UniqueConstraint("tenant_id", "number", name="uq_invoices_tenant_id"),
    )
    op.create_index("ix_invoices_customer_id", "invoices", ["customer_id"])
    op.create_index("ix_invoices_due_on", "invoices", ["due_on"])

    op.create_table(
        "documents",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("tenant_id", sa.Uuid(), nullable=False),
        sa.Column("invoice_id", sa.Uuid(), nullable=False),
        sa.Column(
            "status",
            sa.Enum(
                "PENDING", "READY", "FAILED", name="documentstatus", native_enum=False, length=16
            ),
            nullable=False,
        ),
        sa.Column("chain_id", sa.Uuid(), nullable=True),
        sa.Column("file_id", sa.Uuid(), nullable=True),
        sa.Column("error", sa.String(), nullable=True),
        sa.ForeignKeyConstraint(["file_id"], ["files.id"], name="fk_documents_file_id"),
        sa.ForeignKeyConstraint(["invoice_id"], ["invoices.id"], name="fk_documents_invoice_id"),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_documents_tenant_id"),
        sa.PrimaryKeyConstraint("id", name="pk_documents"),
        sa.UniqueConstraint("invoice_id", name="uq_documents_invoice_id"),
    )
    op.create_index("ix_documents_tenant_id", "documents", ["tenant_id"])

    op.create_table(
        "email_deliveries",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("tenant_id", sa.Uuid(), nullable=False),
        sa.Column("invoice_id", sa.Uuid(), nullable=False),
        sa.Column("idempotency_key", sa.String(), nullable=False),
        sa.Column("purpose", sa.String(), nullable=False),
        sa.Column("recipient", sa.String(), nullable=False),
        sa.Column(
            "status",
            sa.Enum(
                "PENDING", "SENT", "FAILED", name="deliverystatus", native_enum=False, length=16
            ),
            nullable=False,
        ),
        sa.Column("chain_id", sa.Uuid(), nullable=True),
        sa.Column("error", sa.String(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("sent_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(
            ["invoice_id"], ["invoices.id"], name="fk_email_deliveries_invoice_id"
        ),
        sa.ForeignKeyConstraint(
            ["tenant_id"], ["tenants.id"], name="fk_email_deliveries_tenant_id"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_email_deliveries"),
        sa.UniqueConstraint("idempotency_key", name="uq_email_deliveries_idempotency_key"),
    )
    op.create_index("ix_email_deliveries_invoice_id", "email_deliveries", ["invoice_id"])
    op.create_index("ix_email_deliveries_tenant_id", "email_deliveries", ["tenant_id"])

    op.create_table(
        "invoice_lines",
        sa.Column("invoice_id", sa.Uuid(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("description", sa.String(), nullable=False),
        sa.Column("quantity", sa.Integer(), nullable=False),
        sa.Column("unit_price", sa.Integer(), nullable=False),
        sa.Column("tax_rate", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["invoice_id"], ["invoices.id"], name="fk_invoice_lines_invoice_id"
        ),
        sa.PrimaryKeyConstraint("invoice_id", "position", name="pk_invoice_lines"),
    )
    op.create_table(
        "reminders",
        sa.Column("invoice_id", sa.Uuid(), nullable=False),
        sa.Column("level", sa.Integer(), nullable=False),
        sa.Column("reminded_on", sa.Date(), nullable=False),
        sa.ForeignKeyConstraint(["invoice_id"], ["invoices.id"], name="fk_reminders_invoice_id"),
        sa.PrimaryKeyConstraint("invoice_id", name="pk_reminders"),
    )


def downgrade() -> None:
    for table in reversed(TABLES):
        op.drop_table(table)
