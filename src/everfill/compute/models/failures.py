"""What goes wrong between Everfill and a model provider, as failures of a cell. No I/O.

A bad key, a prompt that is refused, one that is too long, an account without money, a request to
slow down and an outage are told apart, each in the provider's own words: shortened, and without
whatever looks like a key.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Final, NamedTuple, cast

from everfill.compute.models.wire import Quirk
from everfill.compute.protocol import Failure
from everfill.kernel import limits
from everfill.tables.values import JsonValue

__all__ = ["Refusal", "read_refusal", "shorten"]

_KEY: Final = re.compile(
    r"\b(?:sk|pk|rk|gsk|xai|key)[-_][-_A-Za-z0-9*.]{6,}|\bAIza[-_A-Za-z0-9.]{6,}|(?<=Bearer )\S+"
)
_DEPTH_MAX: Final = 4
"""Of words within an error: the customary shapes have three."""
_SECRET_CHARS_MIN: Final = 6
"""Shorter ones guard nothing (`none`, `x`), and would be found in the middle of words."""
_PASSING: Final = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.CONFLICT, HTTPStatus.TOO_EARLY})
_MISSHAPEN: Final = frozenset({HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY})
_WORD_KEYS: Final = ("message", "detail", "error", "msg")
_CODE_KEYS: Final = ("code", "type", "status", "reason", "error_code")
_OVERFLOW_CODES: Final = frozenset(
    {"context_length_exceeded", "request_too_large", "string_above_max_length"}
)
_OVERFLOW: Final = re.compile(
    r"context (?:length|window)|(?:prompt|input) is too long|exceed context limit|"
    r"too many (?:input )?tokens|"
    r"maximum number of (?:input )?tokens|input token count|reduce the length of",
    re.IGNORECASE,
)
_NEVER: Final = re.compile(r"request too large", re.IGNORECASE)
"""One call of more tokens than a minute has: no waiting helps."""
_BROKE_CODES: Final = frozenset(
    {
        "insufficient_quota",
        "billing_error",
        "billing_hard_limit_reached",
        "credit_balance_exhausted",
        "enforced_spend_limit_reached",
        "spend_limit_reached",
    }
)
_BROKE: Final = re.compile(
    r"credit balance|insufficient (?:balance|credits?|funds)|spend(?:ing)? limit|usage limits",
    re.IGNORECASE,
)
_KEY_CODES: Final = frozenset({"invalid_api_key", "api_key_invalid", "authentication_error"})
_REFUSED_CODES: Final = frozenset({"content_filter", "content_policy_violation", "invalid_prompt"})
_FILTERED: Final = re.compile(r"content filter", re.IGNORECASE)
_NO_KEY: Final = re.compile(r"unregistered callers|api key", re.IGNORECASE)
_BAD_SCHEMA: Final = re.compile(r"invalid (?:json )?schema", re.IGNORECASE)
"""One author's, not any."""
_NO_SCHEMA: Final = re.compile(
    r"response_format|json_schema|response_?json_?schema|output_config|output_format|"
    r"structured output|json mode",
    re.IGNORECASE,
)
_LIMIT: Final = re.compile(r"max_(?:completion_)?tokens", re.IGNORECASE)
_UNKNOWN: Final = re.compile(
    r"unsupported|not supported|unrecognized|unknown|unexpected|extra (?:inputs|fields)|use '?max_",
    re.IGNORECASE,
)


class _Verdict(NamedTuple):
    code: str
    prefix: str
    transient: bool


_OVERLONG: Final = _Verdict("input_too_long", "Too long for the model:", transient=False)
_QUOTA: Final = _Verdict("quota_exceeded", "The account's quota is used up:", transient=False)
_SLOWER: Final = _Verdict("rate_limited", "The provider asks to slow down:", transient=True)
_BAD_KEY: Final = _Verdict("key_invalid", "Check your API key. Provider:", transient=False)
_FORBIDDEN: Final = _Verdict("not_allowed", "The provider does not allow it:", transient=False)
_MISSING: Final = _Verdict("model_not_found", "No such model or path:", transient=False)
_REFUSED: Final = _Verdict("refused", "The provider refused the prompt:", transient=False)
_UNPAID: Final = frozenset(
    {HTTPStatus.BAD_REQUEST, HTTPStatus.FORBIDDEN, HTTPStatus.TOO_MANY_REQUESTS}
)
_BY_STATUS: Final[Mapping[int, _Verdict]] = {
    HTTPStatus.UNAUTHORIZED: _BAD_KEY,
    HTTPStatus.PAYMENT_REQUIRED: _QUOTA,
    HTTPStatus.FORBIDDEN: _FORBIDDEN,
    HTTPStatus.NOT_FOUND: _MISSING,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: _OVERLONG,
    HTTPStatus.TOO_MANY_REQUESTS: _SLOWER,
}


@dataclass(frozen=True, slots=True)
class Refusal:
    """An error that a provider answered with.

    Attributes:
        status: Of HTTP.
        words: Its message, or `no message`.
        codes: Every code, type and reason in it, lower-case.
        retry_after_seconds: How long it asks to be left alone.
    """

    status: int
    words: str
    codes: frozenset[str] = field(default_factory=frozenset[str])
    retry_after_seconds: float | None = None

    @property
    def quirk(self) -> Quirk | None:
        """What the model does not take, where the request was refused for the sake of that."""
        if self.status not in _MISSHAPEN:
            return None
        if _LIMIT.search(self.words) and _UNKNOWN.search(self.words):
            return Quirk.OTHER_LIMIT
        if _BAD_SCHEMA.search(self.words):
            return None
        return Quirk.NO_SCHEMA if _NO_SCHEMA.search(self.words) else None

    def explain(self, secrets: Sequence[str] = ()) -> Failure:
        """The failure it makes of a cell."""
        verdict = self._judge()
        return Failure(
            code=verdict.code,
            message=shorten(f"{verdict.prefix} {self.words}", secrets),
            transient=verdict.transient,
            retry_after_seconds=self.retry_after_seconds if verdict.transient else None,
        )

    def _judge(self) -> _Verdict:
        """The first that fits."""
        if self.codes & _BROKE_CODES:
            return _QUOTA
        if self.codes & _KEY_CODES:
            return _BAD_KEY
        if self.codes & _REFUSED_CODES:
            return _REFUSED
        if self.codes & _OVERFLOW_CODES:
            return _OVERLONG
        return self._judge_words() or _BY_STATUS.get(self.status) or self._judge_status()

    def _judge_words(self) -> _Verdict | None:
        """For providers that give no codes."""
        if self.status in _MISSHAPEN and _OVERFLOW.search(self.words):
            return _OVERLONG
        if self.status == HTTPStatus.TOO_MANY_REQUESTS and _NEVER.search(self.words):
            return _OVERLONG
        if self.status in _MISSHAPEN and _FILTERED.search(self.words):
            return _REFUSED
        if self.status == HTTPStatus.FORBIDDEN and _NO_KEY.search(self.words):
            return _BAD_KEY
        if self.status in _UNPAID and _BROKE.search(self.words):
            return _QUOTA
        return None

    def _judge_status(self) -> _Verdict:
        if self.status >= HTTPStatus.INTERNAL_SERVER_ERROR or self.status in _PASSING:
            prefix = f"The provider failed ({self.status}):"
            return _Verdict("provider_failed", prefix, transient=True)
        prefix = f"The provider rejected the request ({self.status}):"
        return _Verdict("request_rejected", prefix, transient=False)


def read_refusal(
    status: int, headers: Mapping[str, str], body: bytes, *, now: datetime | None = None
) -> Refusal:
    """What a provider's error says.

    Args:
        status: Of HTTP; not a success.
        headers: By name, lower-case.
        body: JSON in one of the customary shapes, or anything else.
        now: For times in headers.
    """
    if location := headers.get("location"):
        moved = f"The address has moved to {location}; set the connection's base_url."
        return Refusal(status, moved)
    try:
        told = cast("JsonValue", json.loads(body))
    except (ValueError, RecursionError):
        told = _plain(body)
    if isinstance(told, list) and len(told) == 1:  # as some of Google's errors come
        told = told[0]
    errors = list(_errors(told))
    words = next((w for error in errors for w in _words(error)), None)
    codes = {str(code).lower() for error in errors for code in _codes(error)}
    after = _retry_after_seconds(headers, errors, now or datetime.now(UTC))
    return Refusal(status, words or "no message", frozenset(codes), after)


def shorten(text: str, secrets: Sequence[str] = ()) -> str:
    """The text without keys, at most as long as a cell keeps."""
    for secret in secrets:
        if len(secret) >= _SECRET_CHARS_MIN:
            text = text.replace(secret, "[key]")
    text = " ".join(_KEY.sub("[key]", text).split())
    limit = limits.ERROR_MESSAGE_CHARS_MAX
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def _plain(body: bytes) -> JsonValue:
    """A page in HTML says nothing to a reader of a cell."""
    text = body.decode("utf-8", "replace").strip()
    return None if text.startswith("<") else text


def _errors(told: JsonValue) -> Iterator[JsonValue]:
    """The error within, its details, and what is around it."""
    if isinstance(told, dict):
        inner = told.get("error")
        if isinstance(inner, (dict, str)):
            yield inner
            yield from _details(inner)
        yield from _details(told)
    yield told


def _details(error: JsonValue) -> Iterator[JsonValue]:
    """Codes and delays that stand beside an error's words."""
    details = error.get("details") if isinstance(error, dict) else None
    for detail in details if isinstance(details, list) else [details]:
        if isinstance(detail, dict):
            yield {key: value for key, value in detail.items() if key not in _WORD_KEYS}


def _words(error: JsonValue, depth: int = 0) -> Iterator[str]:
    """Messages in an error, with the place of each that has one."""
    if isinstance(error, str) and error.strip():
        yield error
    if not isinstance(error, dict) or depth == _DEPTH_MAX:
        return
    place = error.get("loc")
    at = f"{'.'.join(map(str, place))}: " if isinstance(place, list) and place else ""
    for key in _WORD_KEYS:
        value = error.get(key)
        for part in value if isinstance(value, list) else [value]:
            yield from (f"{at}{words}" for words in _words(part, depth + 1))


def _codes(error: JsonValue) -> Iterator[JsonValue]:
    if isinstance(error, dict):
        yield from (error[key] for key in _CODE_KEYS if isinstance(error.get(key), str))


def _retry_after_seconds(
    headers: Mapping[str, str], errors: list[JsonValue], now: datetime
) -> float | None:
    if milliseconds := _number(headers.get("retry-after-ms")):
        return milliseconds / 1_000
    if asked := headers.get("retry-after"):
        seconds = _number(asked)
        return seconds if seconds is not None else _until(asked, now)
    for error in errors:
        delay = error.get("retryDelay") if isinstance(error, dict) else None
        if isinstance(delay, str):
            return _number(delay.removesuffix("s"))
    return None


def _until(date: str, now: datetime) -> float | None:
    try:
        return max(0.0, (parsedate_to_datetime(date) - now).total_seconds())
    except (ValueError, TypeError):
        return None


def _number(text: str | None) -> float | None:
    try:
        number = float(text) if text else None
    except ValueError:
        return None
    return number if number is not None and 0 <= number < float("inf") else None
