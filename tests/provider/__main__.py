"""Run the provider alone: its address goes to stdout, its counts too when it is interrupted."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys

from .server import ProviderServer


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--latency", type=float, default=0.0, help="seconds before each answer")
    given = parser.parse_args()
    server = ProviderServer(latency_seconds=given.latency, port=given.port, keep_calls=False)
    async with server:
        sys.stdout.write(f"{server.base_url}\n")
        sys.stdout.flush()
        try:
            await asyncio.Event().wait()
        finally:
            counts = {"calls": server.call_count, "concurrent_max": server.concurrent_max}
            sys.stdout.write(f"{json.dumps(counts)}\n")


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except KeyboardInterrupt:
        sys.exit(0)
