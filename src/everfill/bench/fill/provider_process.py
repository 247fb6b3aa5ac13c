"""The provider-like server as a process of its own."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import aiohttp

__all__ = ["count_calls", "open_provider"]


@asynccontextmanager
async def open_provider(latency_ms: int) -> AsyncGenerator[str, None]:
    """The URL of a server that lives as long as the context."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "everfill.bench.fill.provider", str(latency_ms)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout
        line = await process.stdout.readline()
        yield json.loads(line)["url"]
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def count_calls(url: str) -> int:
    """Calls so far."""
    async with aiohttp.ClientSession() as session, session.get(f"{url}/calls") as response:
        return (await response.json())["calls"]
