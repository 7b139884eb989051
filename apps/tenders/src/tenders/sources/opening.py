"""The sources that the settings name."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx

from tenders.settings import Settings
from tenders.sources.api import ApiSource
from tenders.sources.fetching import Fetcher
from tenders.sources.found import TenderSource
from tenders.sources.pages import PageSource
from tenders.trust import trusted_authorities


@asynccontextmanager
async def open_sources(settings: Settings) -> AsyncIterator[list[TenderSource]]:
    """Yield the API if there is a ticket for it, and the pages if there is an address of them."""
    timeout_s, verify = settings.source_timeout_s, trusted_authorities()
    async with httpx.AsyncClient(timeout=timeout_s, verify=verify) as client:
        sources: list[TenderSource] = []
        if settings.api_ticket:
            fetcher = Fetcher(client, timeout_s)
            sources.append(ApiSource(fetcher, settings.api_url, settings.api_ticket))
        if settings.pages_url:
            fetcher = Fetcher(client, timeout_s)
            sources.append(PageSource(fetcher, settings.pages_url, settings.pages))
        yield sources
