"""Chat completions, as OpenAI defined them and most others speak them. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from everfill.compute.models.wire import (
    Finish,
    MalformedError,
    Prompt,
    Quirk,
    Reply,
    Tokens,
    decode,
)
from everfill.tables.values import JsonValue

__all__ = ["Chat"]

_LIMITS: Final = ("max_completion_tokens", "max_tokens")
_FINISHES: Final = {
    "length": Finish.LENGTH,
    "model_length": Finish.LENGTH,
    "content_filter": Finish.REFUSED,
}


class _Part(msgspec.Struct):
    text: str = ""


class _Message(msgspec.Struct):
    content: str | list[_Part] | None = None
    refusal: str | None = None


class _Choice(msgspec.Struct):
    message: _Message
    finish_reason: str | None = None


class _PromptDetails(msgspec.Struct):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _PromptDetails | None = None


class _Completion(msgspec.Struct):
    choices: list[_Choice]
    model: str | None = None
    usage: _Usage | None = None


_DECODER: Final = msgspec.json.Decoder(_Completion)


class Chat:
    """Chat completions.

    Args:
        key_header: The header that carries the key; `authorization` carries it as a bearer token.
        limit: What the bound on tokens is called: OpenAI's newer models refuse the older name,
            which many other servers know alone.
    """

    def __init__(self, *, key_header: str = "authorization", limit: str = "max_tokens") -> None:
        assert limit in _LIMITS, limit
        self._key_header = key_header
        self._limit = limit

    def path(self, model: str) -> str:
        """One for all models."""
        del model
        return "/chat/completions"

    def headers(self, key: str | None) -> Mapping[str, str]:
        """The key in its header."""
        if key is None:
            return {}
        value = f"Bearer {key}" if self._key_header == "authorization" else key
        return {self._key_header: value}

    def body(self, prompt: Prompt) -> Mapping[str, JsonValue]:
        """The request."""
        messages: list[JsonValue] = [
            {"role": role, "content": text}
            for role, text in (("system", prompt.system), *prompt.messages)
        ]
        body: dict[str, JsonValue] = {"model": prompt.model, "messages": messages}
        body[self._limit_name(prompt)] = prompt.output_tokens_max
        if prompt.temperature is not None:
            body["temperature"] = prompt.temperature
        if prompt.schema and Quirk.NO_SCHEMA not in prompt.quirks:
            answer: dict[str, JsonValue] = {
                "name": "answer",
                "schema": dict(prompt.schema),
                "strict": prompt.strict,
            }
            body["response_format"] = {"type": "json_schema", "json_schema": answer}
        return body

    def read(self, body: bytes) -> Reply:
        """The first choice."""
        completion = decode(_DECODER, body)
        if not completion.choices:
            raise MalformedError("it has no choices")
        choice = completion.choices[0]
        if choice.finish_reason == "error":
            raise MalformedError("the model broke off with an error")
        finish = _FINISHES.get(choice.finish_reason or "", Finish.STOP)
        text = _text(choice.message.content)
        if choice.message.refusal:
            finish, text = Finish.REFUSED, choice.message.refusal
        return Reply(
            text=text, finish=finish, model=completion.model, tokens=_tokens(completion.usage)
        )

    def _limit_name(self, prompt: Prompt) -> str:
        if Quirk.OTHER_LIMIT not in prompt.quirks:
            return self._limit
        return next(name for name in _LIMITS if name != self._limit)


def _text(content: str | list[_Part] | None) -> str:
    if isinstance(content, list):
        return "".join(part.text for part in content)
    return content or ""


def _tokens(usage: _Usage | None) -> Tokens:
    if usage is None:
        return Tokens()
    details = usage.prompt_tokens_details
    return Tokens(
        input=usage.prompt_tokens or 0,
        output=usage.completion_tokens or 0,
        cache_read=(details and details.cached_tokens) or 0,
    )
