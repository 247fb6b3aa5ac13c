"""Google's generateContent, of the Gemini API. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import quote

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

__all__ = ["Google"]

_ROLES: Final = {"user": "user", "assistant": "model"}
_FINISHES: Final = {"STOP": Finish.STOP, "MAX_TOKENS": Finish.LENGTH}
_UNSAID: Final = frozenset({None, "FINISH_REASON_UNSPECIFIED"})


class _Part(msgspec.Struct):
    text: str = ""
    thought: bool = False


class _Content(msgspec.Struct):
    parts: list[_Part] = []


class _Candidate(msgspec.Struct, rename="camel"):
    content: _Content = msgspec.field(default_factory=_Content)
    finish_reason: str | None = None
    finish_message: str | None = None


class _Feedback(msgspec.Struct, rename="camel"):
    block_reason: str | None = None
    block_reason_message: str | None = None


class _Usage(msgspec.Struct, rename="camel"):
    prompt_token_count: int = 0
    candidates_token_count: int = 0
    thoughts_token_count: int = 0
    cached_content_token_count: int = 0


class _Generated(msgspec.Struct, rename="camel"):
    candidates: list[_Candidate] = []
    prompt_feedback: _Feedback | None = None
    usage_metadata: _Usage | None = None
    model_version: str | None = None


_DECODER: Final = msgspec.json.Decoder(_Generated)


class Google:
    """generateContent."""

    def path(self, model: str) -> str:
        """Every model has its own."""
        return f"/models/{quote(model.removeprefix('models/'), safe='')}:generateContent"

    def headers(self, key: str | None) -> Mapping[str, str]:
        """The key in its header."""
        return {} if key is None else {"x-goog-api-key": key}

    def body(self, prompt: Prompt) -> Mapping[str, JsonValue]:
        """The request."""
        config: dict[str, JsonValue] = {"maxOutputTokens": prompt.output_tokens_max}
        if prompt.temperature is not None:
            config["temperature"] = prompt.temperature
        if prompt.schema and Quirk.NO_SCHEMA not in prompt.quirks:
            config["responseMimeType"] = "application/json"
            config["responseJsonSchema"] = dict(prompt.schema)
        return {
            "systemInstruction": {"parts": [{"text": prompt.system}]},
            "contents": [
                {"role": _ROLES[message.role], "parts": [{"text": message.text}]}
                for message in prompt.messages
            ],
            "generationConfig": config,
        }

    def read(self, body: bytes) -> Reply:
        """The first candidate, without its thoughts; a prompt that was blocked has none."""
        generated = decode(_DECODER, body)
        tokens, model = _tokens(generated.usage_metadata), generated.model_version
        feedback = generated.prompt_feedback
        if feedback and feedback.block_reason:
            words = feedback.block_reason_message or feedback.block_reason
            return Reply(text=words, finish=Finish.REFUSED, model=model, tokens=tokens)
        if not generated.candidates:
            raise MalformedError("it has no candidates")
        candidate = generated.candidates[0]
        text = "".join(part.text for part in candidate.content.parts if not part.thought)
        finish = _finish(candidate.finish_reason)
        if finish is Finish.REFUSED:
            text = candidate.finish_message or text or candidate.finish_reason or ""
        return Reply(text=text, finish=finish, model=model, tokens=tokens)


def _finish(reason: str | None) -> Finish:
    """Everything but an end and a bound is a filter: safety, recitation, blocked words, ..."""
    return Finish.STOP if reason in _UNSAID else _FINISHES.get(reason or "", Finish.REFUSED)


def _tokens(usage: _Usage | None) -> Tokens:
    """Thoughts are billed as output, and counted apart."""
    if usage is None:
        return Tokens()
    return Tokens(
        input=usage.prompt_token_count,
        output=usage.candidates_token_count + usage.thoughts_token_count,
        cache_read=usage.cached_content_token_count,
    )
