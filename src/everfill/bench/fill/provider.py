"""A provider-like server: answers after a set time, and counts its calls.

`python -m everfill.bench.fill.provider LATENCY_MS` prints its URL. `POST /v1/chat/completions`
answers as a model does, with the last message in capitals; `POST /fill` takes `{"input": text}` and
gives `{"output": TEXT}`; `GET /calls` gives `{"calls": n}`.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from aiohttp import web

__all__ = ["main"]


class _Provider:
    def __init__(self, latency_seconds: float) -> None:
        self._latency_seconds = latency_seconds
        self._calls = 0

    def app(self) -> web.Application:
        app = web.Application(client_max_size=2**24)
        app.router.add_post("/v1/chat/completions", self._complete)
        app.router.add_post("/fill", self._fill)
        app.router.add_get("/calls", self._count)
        return app

    async def _complete(self, request: web.Request) -> web.Response:
        body: dict[str, Any] = await request.json()
        await self._take_time()
        content = body["messages"][-1]["content"]
        text = content if isinstance(content, str) else content[0]["text"]
        message = {"role": "assistant", "content": text.upper()}
        usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
        return web.json_response(
            {
                "id": f"chat-{self._calls}",
                "object": "chat.completion",
                "created": 1,
                "model": body["model"],
                "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
                "usage": usage,
            }
        )

    async def _fill(self, request: web.Request) -> web.Response:
        body: dict[str, str] = await request.json()
        await self._take_time()
        return web.json_response({"output": body["input"].upper()})

    async def _count(self, request: web.Request) -> web.Response:
        del request
        return web.json_response({"calls": self._calls})

    async def _take_time(self) -> None:
        self._calls += 1
        await asyncio.sleep(self._latency_seconds)


async def main(latency_ms: float) -> None:
    """Serve on a free port of the loopback until the standard input ends."""
    runner = web.AppRunner(_Provider(latency_ms / 1_000).app(), access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    sys.stdout.write(json.dumps({"url": f"http://{host}:{port}"}) + "\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.read)
    await runner.cleanup()


if __name__ == "__main__":
    asyncio.run(main(float(sys.argv[1])))
