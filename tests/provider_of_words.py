"""A provider for benchmarks under test: it answers each word after a wait, and counts its calls.

    python provider_of_words.py --latency-ms 20

It prints its address, then serves until it is ended. `POST /` of `{"input": word}` gives
`{"output": "answer to word"}`; `GET /calls` gives `{"calls": n, "peak": most at once}`.
"""

from __future__ import annotations

import argparse
import asyncio
import json


class Words(asyncio.Protocol):
    """One connection; requests of a connection come one after the other."""

    latency_seconds = 0.0
    calls = 0
    under_way = 0
    peak = 0

    def __init__(self) -> None:
        self.buffer = b""
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        head, separator, rest = self.buffer.partition(b"\r\n\r\n")
        if not separator:
            return
        if head.startswith(b"GET "):
            self.buffer = rest
            self.answer({"calls": Words.calls, "peak": Words.peak})
            return
        size = next(
            int(line.split(b":")[1])
            for line in head.split(b"\r\n")
            if line.lower().startswith(b"content-length:")
        )
        if len(rest) < size:
            return
        self.buffer = rest[size:]
        Words.calls += 1
        Words.under_way += 1
        Words.peak = max(Words.peak, Words.under_way)
        word = json.loads(rest[:size])["input"]
        loop = asyncio.get_running_loop()
        loop.call_later(Words.latency_seconds, self.finish, f"answer to {word}")

    def finish(self, text: str) -> None:
        Words.under_way -= 1
        self.answer({"output": text})

    def answer(self, body: dict[str, object]) -> None:
        assert self.transport is not None
        content = json.dumps(body).encode()
        head = (
            f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(content)}"
        )
        self.transport.write(head.encode() + b"\r\n\r\n" + content)


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--latency-ms", type=float, default=0.0)
    Words.latency_seconds = parser.parse_args().latency_ms / 1000
    server = await asyncio.get_running_loop().create_server(Words, "127.0.0.1", 0, backlog=2048)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)  # noqa: T201
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
