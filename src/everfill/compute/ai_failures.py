"""What goes wrong between Everfill and a model provider, as failures of a cell.

The provider's own words are kept, shortened; whatever looks like a key is not.
"""

from __future__ import annotations

import re
from typing import Final, cast

from pydantic_ai import exceptions

from everfill.compute.protocol import Failure
from everfill.kernel import limits

__all__ = ["explain", "refuses_schema", "shorten"]

_KEY: Final = re.compile(
    r"\b(?:sk|pk|rk|gsk|xai|key|AIza)[-_A-Za-z0-9*.]{6,}|(?<=Bearer )\S+", re.IGNORECASE
)
_PASSING_STATUS: Final = frozenset({408, 409, 425, 429})
_SERVER_ERROR: Final = 500


def shorten(text: str, secret: str | None = None) -> str:
    """The text without keys, at most as long as a cell keeps."""
    if secret:
        text = text.replace(secret, "[key]")
    text = " ".join(_KEY.sub("[key]", text).split())
    limit = limits.ERROR_MESSAGE_CHARS_MAX
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def explain(error: exceptions.AgentRunError, secret: str | None = None) -> Failure:
    """The failure that a provider's error makes of a cell."""
    code, prefix, transient = _judge(error)
    retry_after = error.retry_after if isinstance(error, exceptions.ModelAPIError) else None
    return Failure(
        code=code,
        message=shorten(f"{prefix} {_words(error)}".strip(), secret),
        transient=transient,
        retry_after_seconds=retry_after if transient else None,
    )


def refuses_schema(error: exceptions.ModelRequestRejectedError) -> bool:
    """Whether the endpoint rejects the request because it asks for an answer by JSON schema."""
    words = _words(error).casefold()
    return any(term in words for term in ("response_format", "json_schema", "structured output"))


def _judge(error: exceptions.AgentRunError) -> tuple[str, str, bool]:
    """Code, opening words, and whether a later try may succeed; the first that fits."""
    rules: tuple[tuple[type[Exception], str, str, bool], ...] = (
        (exceptions.ModelTimeoutError, "timeout", "The provider did not answer in time:", True),
        (
            exceptions.ModelConnectionError,
            "connection_failed",
            "No connection to the provider:",
            True,
        ),
        (
            exceptions.ModelQuotaExceededError,
            "quota_exceeded",
            "The account's quota is used up:",
            False,
        ),
        (exceptions.ModelRateLimitError, "rate_limited", "The provider asks to slow down:", True),
        (
            exceptions.ModelContextWindowExceededError,
            "input_too_long",
            "Too long for the model:",
            False,
        ),
        (
            exceptions.ModelAuthenticationError,
            "key_invalid",
            "Check your API key. Provider:",
            False,
        ),
        (exceptions.ModelNotFoundError, "model_not_found", "No such model or path:", False),
    )
    unconnected = isinstance(error, exceptions.ModelConnectionError) and error.phase == "connect"
    for family, code, prefix, transient in rules[1:] if unconnected else rules:
        if isinstance(error, family):
            return code, prefix, transient
    return _judge_status(error)


def _judge_status(error: exceptions.AgentRunError) -> tuple[str, str, bool]:
    if isinstance(error, exceptions.ModelHTTPError):
        status = error.status_code
        if status >= _SERVER_ERROR or status in _PASSING_STATUS:
            return "provider_failed", f"The provider failed ({status}):", True
        return "request_rejected", f"The provider rejected the request ({status}):", False
    if isinstance(error, exceptions.ModelRequestRejectedError):
        return "request_rejected", "The provider rejected the request:", False
    return "answer_malformed", "The provider's answer is not a chat completion:", True


def _words(error: exceptions.AgentRunError) -> str:
    """The provider's own message where it sent one."""
    body = error.body if isinstance(error, exceptions.ModelAPIError) else None
    if isinstance(body, dict):
        fields = cast("dict[str, object]", body)
        inner = fields.get("error")
        if isinstance(inner, dict):
            fields = cast("dict[str, object]", inner)
        for key in ("message", "detail", "error"):
            if isinstance(words := fields.get(key), str) and words.strip():
                return words
    if isinstance(body, str) and body.strip():
        return body
    if isinstance(error, exceptions.ModelHTTPError):
        return "no message"
    return error.message
