"""A real HTTP server that behaves like model providers, in the wire format of each path.

`POST /v1/chat/completions` speaks as OpenAI does, `POST /v1/messages` as Anthropic and `POST
/v1/models/NAME:generateContent` as Google.

Each call takes the next `Reply` of its script; when the script is over, `default` answers, with a
valid answer for whatever JSON schema the call carries. Calls are kept, and counted while under way.
Standalone: `python -m tests.provider --latency 0.02 --port 8111`.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Self

Json = Any
HANG_SECONDS = 3_600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What one call gets.

    Attributes:
        content: The message's text; None: made to fit the call (see `fitting_content`).
        status: The HTTP status; from 400 on, `content` is the error's message.
        headers: More response headers.
        latency_seconds: Waited before the answer; None: the server's own.
        finish_reason: Such as `length`.
        refusal: The message's refusal.
        error_code: The error's `code`.
        raw: The body itself, instead of a chat completion.
        cut: Close the connection in the middle of the body.
        hang: Never answer.
        input_tokens, output_tokens: The usage reported; input None: leave usage out.
    """

    content: str | None = None
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    latency_seconds: float | None = None
    finish_reason: str = "stop"
    refusal: str | None = None
    error_code: str | None = None
    raw: bytes | None = None
    cut: bool = False
    hang: bool = False
    input_tokens: int | None = 11
    output_tokens: int = 7


@dataclass(slots=True)
class ProviderServer:
    """The server; an asynchronous context manager that listens while it is open."""

    default: Reply = field(default_factory=Reply)
    latency_seconds: float = 0.0
    keep_calls: bool = True
    port: int = 0
    script: deque[Reply] = field(default_factory=deque)
    respond: Callable[[Json], Reply | None] | None = None
    calls: list[Json] = field(default_factory=list)
    headers_seen: list[dict[str, str]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    call_count: int = 0
    concurrent: int = 0
    concurrent_max: int = 0
    _server: asyncio.Server | None = None
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def then(self, *replies: Reply) -> None:
        """Add to the script."""
        self.script.extend(replies)

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, backlog=1024)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            while await self._exchange(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the client went away, or the server is closing
        finally:
            self._tasks.discard(task)
            writer.close()
            with suppress(ConnectionError, asyncio.CancelledError):
                await writer.wait_closed()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """One request and its answer; whether the connection stays open."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        request_line, *lines = head.split("\r\n")
        headers = {
            name.strip().lower(): value.strip()
            for name, _, value in (line.partition(":") for line in lines if line)
        }
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        method, path, *_ = request_line.split(" ")
        speak = _DIALECTS.get(path.rpartition(":")[2].removeprefix("/v1"))
        if method != "POST" or speak is None:
            await _send(writer, 404, b'{"error": {"message": "no such path"}}', {})
            return True
        self.paths.append(path)
        return await self._complete(speak, json.loads(body), headers, writer)

    async def _complete(
        self, speak: Dialect, call: Json, headers: dict[str, str], writer: asyncio.StreamWriter
    ) -> bool:
        self.call_count += 1
        if self.keep_calls:
            self.calls.append(call)
            self.headers_seen.append(headers)
        reply = self.script.popleft() if self.script else None
        if reply is None and self.respond is not None:
            reply = self.respond(call)
        reply = reply or self.default
        self.concurrent += 1
        self.concurrent_max = max(self.concurrent_max, self.concurrent)
        try:
            return await self._answer(speak, call, reply, writer)
        finally:
            self.concurrent -= 1

    async def _answer(
        self, speak: Dialect, call: Json, reply: Reply, writer: asyncio.StreamWriter
    ) -> bool:
        given = reply.latency_seconds
        latency = HANG_SECONDS if reply.hang else self.latency_seconds if given is None else given
        if latency:
            await asyncio.sleep(latency)
        body = reply.raw if reply.raw is not None else _body(speak, call, reply)
        if reply.cut:
            head = f"HTTP/1.1 200 OK\r\ncontent-length: {len(body)}\r\n\r\n".encode()
            writer.write(head + body[: len(body) // 2])
            await writer.drain()
            return False
        await _send(writer, reply.status, body, reply.headers)
        return True


def fitting_content(prompt: str, schema: Json) -> str:
    """A valid answer: for a schema its first possible value, else an echo of the prompt."""
    return json.dumps(_example(schema)) if schema else f"echo: {prompt}"


def _example(schema: Json) -> Json:
    if "enum" in schema:
        return schema["enum"][0]
    if "anyOf" in schema:
        return _example(schema["anyOf"][0])
    kind = schema.get("type")
    kind = kind[0] if isinstance(kind, list) else kind
    if kind == "object":
        return {
            name: None if name == "reason" else _example(part)
            for name, part in schema.get("properties", {}).items()
        }
    if kind == "array":
        return [_example(schema["items"])]
    if "YYYY-MM-DD" in schema.get("description", ""):
        return "2026-01-31"
    examples = {"boolean": True, "number": 1.5, "integer": 1, "string": "https://example.org/"}
    return examples.get(kind, {"any": "value"})


Dialect = Callable[[Json, Reply], Json]


def _body(speak: Dialect, call: Json, reply: Reply) -> bytes:
    if reply.status >= 400:
        error = {"message": reply.content or "failed", "type": "error", "code": reply.error_code}
        return json.dumps({"error": error}).encode()
    return json.dumps(speak(call, reply)).encode()


def _chat(call: Json, reply: Reply) -> Json:
    form = (call.get("response_format") or {}).get("json_schema") or {}
    content = _content(reply, call["messages"][-1]["content"], form.get("schema"))
    message = {"role": "assistant", "content": content, "refusal": reply.refusal}
    if reply.refusal:
        message["content"] = None
    answer: dict[str, Json] = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": call.get("model", "unknown"),
        "choices": [{"index": 0, "message": message, "finish_reason": reply.finish_reason}],
    }
    if reply.input_tokens is not None:
        answer["usage"] = {
            "prompt_tokens": reply.input_tokens,
            "completion_tokens": reply.output_tokens,
            "total_tokens": reply.input_tokens + reply.output_tokens,
        }
    return answer


def _anthropic(call: Json, reply: Reply) -> Json:
    form = (call.get("output_config") or {}).get("format") or {}
    content = reply.refusal or _content(reply, call["messages"][-1]["content"], form.get("schema"))
    reasons = {"stop": "end_turn", "length": "max_tokens"}
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": call["model"],
        "content": [{"type": "text", "text": content}],
        "stop_reason": "refusal" if reply.refusal else reasons[reply.finish_reason],
        "usage": {"input_tokens": reply.input_tokens or 0, "output_tokens": reply.output_tokens},
    }


def _google(call: Json, reply: Reply) -> Json:
    schema = call["generationConfig"].get("responseJsonSchema")
    content = _content(reply, call["contents"][-1]["parts"][0]["text"], schema)
    usage = {
        "promptTokenCount": reply.input_tokens or 0,
        "candidatesTokenCount": reply.output_tokens - 1,
        "thoughtsTokenCount": 1,
    }
    if reply.refusal:
        feedback = {"blockReason": "SAFETY", "blockReasonMessage": reply.refusal}
        return {"promptFeedback": feedback, "usageMetadata": usage}
    parts = [{"text": "Let me think.", "thought": True}, {"text": content}]
    reasons = {"stop": "STOP", "length": "MAX_TOKENS"}
    candidate = {
        "content": {"role": "model", "parts": parts},
        "finishReason": reasons[reply.finish_reason],
    }
    return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "test-model"}


def _content(reply: Reply, prompt: str, schema: Json) -> str:
    return fitting_content(prompt, schema) if reply.content is None else reply.content


_DIALECTS: dict[str, Dialect] = {
    "/chat/completions": _chat,
    "/messages": _anthropic,
    "generateContent": _google,
}


async def _send(
    writer: asyncio.StreamWriter, status: int, body: bytes, headers: dict[str, str]
) -> None:
    lines = [f"HTTP/1.1 {status} X", "content-type: application/json"]
    lines += [f"content-length: {len(body)}", *(f"{k}: {v}" for k, v in headers.items())]
    writer.write("\r\n".join([*lines, "", ""]).encode() + body)
    await writer.drain()
