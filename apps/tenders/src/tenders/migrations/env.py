"""How Alembic reaches the application's tables; Holdfast's own tables are none of its business."""

from __future__ import annotations

import re

from alembic import context
from sqlalchemy import create_engine

from holdfast.contrib.sqlalchemy_url import sqlalchemy_url
from tenders.models import Base
from tenders.settings import read_settings

OF_OTHERS = re.compile(r"holdfast|archive_|tenders_\d{4}_\d{2}$")
"""Holdfast's tables, copies of ours that only its archive writes, and partitions, which follow their parent."""

url = context.config.attributes.get("url") or read_settings().database_url
engine = create_engine(sqlalchemy_url(url))
with engine.connect() as connection:
    context.configure(
        connection=connection,
        target_metadata=Base.metadata,
        include_name=lambda name, *_: not OF_OTHERS.match(name or ""),
        render_as_batch=True,
    )
    with context.begin_transaction():
        context.run_migrations()
engine.dispose()
