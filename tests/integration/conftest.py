"""A model provider of our own, and the kind that asks it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from everfill.compute.ai import AiKind
from provider import ProviderServer


@pytest_asyncio.fixture
async def provider() -> AsyncIterator[ProviderServer]:
    async with ProviderServer() as server:
        yield server


@pytest_asyncio.fixture
async def kind() -> AsyncIterator[AiKind]:
    made = AiKind()
    yield made
    await made.aclose()
