"""How Alembic reaches the application's tables; Holdfast's own tables are none of its business."""

from __future__ import annotations

from alembic import context
from sqlalchemy import create_engine

from holdfast.contrib.alembic import include_name
from holdfast.contrib.sqlalchemy_url import sqlalchemy_url
from invoicing.models import Base
from invoicing.settings import read_settings

url = context.config.attributes.get("url") or read_settings().database_url
engine = create_engine(sqlalchemy_url(url))
with engine.connect() as connection:
    context.configure(
        connection=connection,
        target_metadata=Base.metadata,
        include_name=include_name,
        render_as_batch=True,
    )
    with context.begin_transaction():
        context.run_migrations()
engine.dispose()
