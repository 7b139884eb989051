"""Which tenant an API token belongs to."""

from __future__ import annotations

import hashlib

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from holdfast import Shard
from invoicing.models import Tenant


def hash_token(token: str) -> str:
    """Return what the database keeps of an API token."""
    return hashlib.sha256(token.encode()).hexdigest()


async def find_tenant(session: AsyncSession, token: str) -> Tenant | None:
    """Return the tenant of a token; looking up a digest tells nothing about the token by its timing."""
    owner = select(Tenant).where(Tenant.token_sha256 == hash_token(token))
    return (await session.scalars(owner)).one_or_none()


async def tenants_of(session: AsyncSession, shard: Shard) -> list[Tenant]:
    """Return the tenants that a shard serves, in the same order everywhere."""
    tenants = await session.scalars(select(Tenant).order_by(Tenant.id))
    return [each for each in tenants if shard.owns(each.id)]
