"""Anthropic's messages. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from everfill.compute.models.wire import Finish, Prompt, Quirk, Reply, Tokens, decode
from everfill.tables.values import JsonValue

__all__ = ["Anthropic"]

_VERSION: Final = "2023-06-01"
_TEMPERATURE_MAX: Final = 1.0
_FINISHES: Final = {
    "max_tokens": Finish.LENGTH,
    "model_context_window_exceeded": Finish.LENGTH,
    "refusal": Finish.REFUSED,
}


class _Block(msgspec.Struct):
    type: str
    text: str = ""


class _Usage(msgspec.Struct):
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None


class _Message(msgspec.Struct):
    content: list[_Block]
    stop_reason: str | None = None
    model: str | None = None
    usage: _Usage | None = None


_DECODER: Final = msgspec.json.Decoder(_Message)


class Anthropic:
    """The messages API."""

    def path(self, model: str) -> str:
        """One for all models."""
        del model
        return "/messages"

    def headers(self, key: str | None) -> Mapping[str, str]:
        """The key, and the version of the API that is spoken."""
        spoken = {"anthropic-version": _VERSION}
        return spoken if key is None else {**spoken, "x-api-key": key}

    def body(self, prompt: Prompt) -> Mapping[str, JsonValue]:
        """The request; its temperatures end at 1."""
        body: dict[str, JsonValue] = {
            "model": prompt.model,
            "system": prompt.system,
            "messages": [
                {"role": message.role, "content": message.text} for message in prompt.messages
            ],
            "max_tokens": prompt.output_tokens_max,
        }
        if prompt.temperature is not None:
            body["temperature"] = min(prompt.temperature, _TEMPERATURE_MAX)
        if prompt.schema and prompt.strict and Quirk.NO_SCHEMA not in prompt.quirks:
            form: dict[str, JsonValue] = {"type": "json_schema", "schema": dict(prompt.schema)}
            body["output_config"] = {"format": form}
        return body

    def read(self, body: bytes) -> Reply:
        """The text blocks, joined."""
        message = decode(_DECODER, body)
        return Reply(
            text="".join(block.text for block in message.content if block.type == "text"),
            finish=_FINISHES.get(message.stop_reason or "", Finish.STOP),
            model=message.model,
            tokens=_tokens(message.usage),
        )


def _tokens(usage: _Usage | None) -> Tokens:
    """Its own count of input leaves the cached tokens out."""
    if usage is None:
        return Tokens()
    read, written = usage.cache_read_input_tokens or 0, usage.cache_creation_input_tokens or 0
    return Tokens(
        input=usage.input_tokens + read + written,
        output=usage.output_tokens,
        cache_read=read,
        cache_write=written,
    )
