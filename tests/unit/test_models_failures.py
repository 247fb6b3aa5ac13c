"""What providers' errors mean for a cell: bodies as each of them sends them."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from everfill.compute.models.failures import Refusal, read_refusal, shorten
from everfill.compute.models.wire import Quirk
from everfill.kernel import limits

NOW = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)
GOOGLE_BAD_KEY = [
    {
        "error": {
            "code": 400,
            "message": "API key not valid. Please pass a valid API key.",
            "status": "INVALID_ARGUMENT",
            "details": [{"@type": "ErrorInfo", "reason": "API_KEY_INVALID"}],
        }
    }
]
GOOGLE_SLOWER = {
    "error": {
        "code": 429,
        "message": "You exceeded your current quota, please check your plan.",
        "status": "RESOURCE_EXHAUSTED",
        "details": [{"@type": "RetryInfo", "retryDelay": "34.5s"}],
    }
}


def openai(message: str, code: str | None = None, kind: str = "invalid_request_error") -> object:
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def anthropic(message: str, kind: str, **details: object) -> object:
    return {"type": "error", "error": {"type": kind, "message": message, **details}}


def refusal(status: int, body: object, **headers: str) -> Refusal:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return read_refusal(status, named, raw, now=NOW)


@pytest.mark.parametrize(
    ("status", "body", "code", "transient", "words"),
    [
        # a bad key
        (401, openai("Incorrect API key.", "invalid_api_key"), "key_invalid", False, "Incorrect"),
        (
            401,
            anthropic("invalid x-api-key", "authentication_error"),
            "key_invalid",
            False,
            "x-api",
        ),
        (400, GOOGLE_BAD_KEY, "key_invalid", False, "API key not valid"),
        (401, {"message": "Unauthorized"}, "key_invalid", False, "Unauthorized"),
        # a good key that may not
        (403, anthropic("No access to it.", "permission_error"), "not_allowed", False, "No access"),
        # no money
        (429, openai("Pay.", "insufficient_quota"), "quota_exceeded", False, "Pay."),
        (402, openai("Payment required"), "quota_exceeded", False, "Payment"),
        (
            400,
            anthropic("Your credit balance is too low.", "invalid_request_error"),
            "quota_exceeded",
            False,
            "too low",
        ),
        (
            429,
            anthropic(
                "x", "rate_limit_error", details={"error_code": "enforced_spend_limit_reached"}
            ),
            "quota_exceeded",
            False,
            "x",
        ),
        # too fast
        (429, openai("Slow down.", "rate_limit_exceeded"), "rate_limited", True, "Slow"),
        (429, GOOGLE_SLOWER, "rate_limited", True, "current quota"),
        # too long
        (400, openai("Too long.", "context_length_exceeded"), "input_too_long", False, "Too long."),
        (
            400,
            anthropic("prompt is too long: 210000 tokens > 200000", "invalid_request_error"),
            "input_too_long",
            False,
            "210000",
        ),
        (
            400,
            {"error": {"message": "The input token count (9) exceeds 8.", "status": "X"}},
            "input_too_long",
            False,
            "token count",
        ),
        (
            400,
            {"object": "error", "message": "This model's maximum context length is 8 tokens."},
            "input_too_long",
            False,
            "maximum context",
        ),
        (
            413,
            anthropic("Request too large", "request_too_large"),
            "input_too_long",
            False,
            "large",
        ),
        (429, openai("Request too large for m on TPM: Limit 3."), "input_too_long", False, "TPM"),
        # a filter
        (400, openai("Filtered.", "content_filter"), "refused", False, "Filtered."),
        # an outage
        (529, anthropic("Overloaded", "overloaded_error"), "provider_failed", True, "Overloaded"),
        (
            503,
            {"error": {"status": "UNAVAILABLE", "message": "Busy"}},
            "provider_failed",
            True,
            "Bu",
        ),
        (502, b"<html><h1>Bad gateway</h1></html>", "provider_failed", True, "no message"),
        (500, b"upstream connect error", "provider_failed", True, "upstream connect"),
        (500, b"\xff\xfe", "provider_failed", True, ""),
        (500, b"", "provider_failed", True, "no message"),
        (
            400,
            anthropic("Output blocked by content filtering policy", "x"),
            "refused",
            False,
            "Outp",
        ),
        (
            403,
            {"error": {"message": "Unregistered callers."}},
            "key_invalid",
            False,
            "Unregistered",
        ),
        (
            400,
            anthropic("You have reached your specified API usage limits.", "invalid_request_error"),
            "quota_exceeded",
            False,
            "usage limits",
        ),
        (
            422,
            {"object": "error", "message": {"detail": [{"loc": ["body", "n"], "msg": "Extra."}]}},
            "request_rejected",
            False,
            "body.n: Extra.",
        ),
        # anything else
        (404, openai("No such model.", "model_not_found"), "model_not_found", False, "No such"),
        (
            422,
            {"detail": [{"msg": "Field required", "loc": ["body"]}]},
            "request_rejected",
            False,
            "F",
        ),
        (400, {"error": "model 'x' is not loaded"}, "request_rejected", False, "not loaded"),
        (418, {"detail": "Teapot"}, "request_rejected", False, "Teapot"),
    ],
)
def test_an_error_becomes_the_right_failure_in_the_providers_words(
    status: int, body: object, code: str, transient: bool, words: str
) -> None:
    failure = refusal(status, body).explain()

    assert (failure.code, failure.transient) == (code, transient), failure.message
    assert words in failure.message
    assert ("check your api key" in failure.message.lower()) == (code == "key_invalid")


@pytest.mark.parametrize(
    ("headers", "body", "seconds"),
    [
        ({"retry_after": "7"}, {}, 7),
        ({"retry_after_ms": "1500", "retry_after": "7"}, {}, 1.5),
        ({"retry_after": "Fri, 01 May 2026 12:00:30 GMT"}, {}, 30),
        ({"retry_after": "Fri, 01 May 2026 11:00:00 GMT"}, {}, 0),
        ({"retry_after": "soon"}, {}, None),
        ({"retry_after": "-3"}, {}, None),
        ({"retry_after": "inf"}, {}, None),
        ({}, GOOGLE_SLOWER, 34.5),
        ({}, {}, None),
    ],
)
def test_a_provider_says_when_to_come_back_in_many_ways(
    headers: dict[str, str], body: object, seconds: float | None
) -> None:
    assert refusal(429, body, **headers).explain().retry_after_seconds == seconds


def test_only_a_passing_failure_says_when_to_come_back() -> None:
    assert refusal(503, {}, retry_after="3").explain().retry_after_seconds == 3
    assert refusal(422, {}, retry_after="3").explain().retry_after_seconds is None


@pytest.mark.parametrize(
    ("status", "words", "quirk"),
    [
        (400, "This response_format type is unavailable now", Quirk.NO_SCHEMA),
        (400, "output_config: Extra inputs are not permitted", Quirk.NO_SCHEMA),
        (400, "Unknown name 'responseJsonSchema'", Quirk.NO_SCHEMA),
        (
            400,
            "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.",
            Quirk.OTHER_LIMIT,
        ),
        (422, "max_completion_tokens: Extra inputs are not permitted", Quirk.OTHER_LIMIT),
        (400, "max_tokens is too large: 9. This model supports at most 8.", None),
        (429, "response_format", None),
        (400, "Invalid schema for response_format 'answer': In context=()", None),
        (400, "JSON mode is not enabled for this model", Quirk.NO_SCHEMA),
        (400, "Bad request", None),
    ],
)
def test_what_a_model_does_not_take_is_read_from_its_refusal(
    status: int, words: str, quirk: Quirk | None
) -> None:
    assert refusal(status, openai(words)).quirk == quirk


def test_an_error_within_errors_without_end_is_read_no_deeper_than_it_makes_sense() -> None:
    for depth in (900, 100_000):
        nested = b'{"error": ' * depth + b'"deep"' + b"}" * depth
        assert refusal(500, nested).explain().code == "provider_failed"


def test_an_address_that_moved_is_told() -> None:
    moved = refusal(308, b"", location="https://new.example/v1/chat/completions").explain()

    assert moved.code == "request_rejected"
    assert "https://new.example/v1" in moved.message
    assert "base_url" in moved.message


@pytest.mark.parametrize(
    "key", ["sk-proj-abc123def456", "sk-ab***************xyz9", "gsk_0123456789", "AIzaSyA-1234567"]
)
def test_what_looks_like_a_key_is_left_out(key: str) -> None:
    assert shorten(f"Incorrect API key provided: {key}.") == "Incorrect API key provided: [key]"


def test_our_own_key_is_left_out_whatever_it_looks_like() -> None:
    assert shorten("You sent hunter2!", ["hunter2"]) == "You sent [key]!"


def test_a_placeholder_is_no_secret() -> None:
    assert shorten("Nonetheless busy.", ["none"]) == "Nonetheless busy."


def test_ordinary_words_stay() -> None:
    words = "The task-oriented keyboard asks for key values; a risk-free sketch."

    assert shorten(words) == words
    assert shorten("Skipping skeletons of keyboards.") == "Skipping skeletons of keyboards."


def test_a_long_message_is_cut() -> None:
    assert len(shorten("word " * 1_000)) == limits.ERROR_MESSAGE_CHARS_MAX
