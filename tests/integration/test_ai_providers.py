"""The `ai` kind in every wire format, and along chains of models."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from everfill.compute.ai import AiKind
from everfill.compute.protocol import (
    ComputeContext,
    ComputeRequest,
    ComputeResult,
    Failure,
    Usage,
    Value,
)
from everfill.kernel import limits
from everfill.kernel.config import AiSettings, Settings
from everfill.tables.types import TEXT, ColumnType, TypeName
from provider import ProviderServer, Reply

NUMBER = ColumnType(name=TypeName.NUMBER)
FORMATS = ["openai", "anthropic", "google", "mistral", "groq", "azure", "bedrock", "ollama"]
KEY_HEADERS = {
    "anthropic": ("x-api-key", "k"),
    "google": ("x-goog-api-key", "k"),
    "azure": ("api-key", "k"),
}


@pytest_asyncio.fixture
async def other() -> AsyncIterator[ProviderServer]:
    async with ProviderServer() as server:
        yield server


def settings(*servers: ProviderServer, provider: str = "openai", **more: Any) -> AiSettings:
    """A connection a server: `one`, `two`; `default` asks them in that order."""
    names = ["one", "two"][: len(servers)]
    connections = {
        name: {"provider": provider, "base_url": server.base_url, "api_key": "k"}
        for name, server in zip(names, servers, strict=True)
    }
    chain = {"default": tuple(f"{name}:test-model" for name in names)}
    given = {"connections": connections, "models": chain, "model": "default", "patience_seconds": 1}
    return AiSettings.model_validate(given | more)


async def ask(
    kind: AiKind, ai: AiSettings, output_type: ColumnType = TEXT, **options: object
) -> ComputeResult:
    request = ComputeRequest(
        text="How much?", inputs={}, source=None, output_type=output_type, options=options
    )
    context = ComputeContext(settings=Settings(ai=ai), files=None)
    (result,) = await kind.compute([request], context)
    return result


@pytest.mark.parametrize("name", FORMATS)
async def test_a_text_and_its_tokens_come_back_in_every_format(
    kind: AiKind, provider: ProviderServer, name: str
) -> None:
    provider.then(Reply(content="Forty-two.\n"))

    result = await ask(kind, settings(provider, provider=name), temperature=0.5)

    usage = Usage(input_tokens=11, output_tokens=7, model="test-model")
    assert result == Value(value="Forty-two.", usage=usage)
    header, value = KEY_HEADERS.get(name, ("authorization", "Bearer k"))
    assert provider.headers_seen[0][header] == value


@pytest.mark.parametrize("name", FORMATS)
async def test_a_typed_answer_is_made_from_the_schema_in_every_format(
    kind: AiKind, provider: ProviderServer, name: str
) -> None:
    result = await ask(kind, settings(provider, provider=name), NUMBER)

    assert isinstance(result, Value)
    assert result.value == 1.5


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize(
    ("reply", "code"),
    [
        (Reply(content="Half of", finish_reason="length"), "answer_truncated"),
        (Reply(refusal="I will not."), "refused"),
        (Reply(raw=b"{}"), "answer_malformed"),
        (Reply(raw=b"<html>"), "answer_malformed"),
        (Reply(status=401, content="No such key."), "key_invalid"),
        (Reply(status=503, content="Busy."), "provider_failed"),
        (Reply(cut=True), "connection_failed"),
    ],
)
async def test_what_goes_wrong_is_told_alike_in_every_format(
    kind: AiKind, provider: ProviderServer, name: str, reply: Reply, code: str
) -> None:
    provider.default = reply

    result = await ask(kind, settings(provider, provider=name))

    assert isinstance(result, Failure)
    assert result.code == code, result.message
    assert (reply.refusal or "") in result.message


async def test_each_format_says_the_same_in_its_own_words(
    kind: AiKind, provider: ProviderServer
) -> None:
    for name in ("openai", "mistral", "anthropic", "google"):
        ai = settings(provider, provider=name, max_output_tokens=99)
        await ask(kind, ai, NUMBER, temperature=1.5, system="Be kind.")

    openai, mistral, anthropic, google = provider.calls
    assert openai["max_completion_tokens"] == mistral["max_tokens"] == 99
    assert anthropic["max_tokens"] == google["generationConfig"]["maxOutputTokens"] == 99
    assert openai["temperature"] == google["generationConfig"]["temperature"] == 1.5
    assert anthropic["temperature"] == 1, "its scale ends there"
    systems = [
        openai["messages"][0]["content"],
        anthropic["system"],
        google["systemInstruction"]["parts"][0]["text"],
    ]
    assert all(text.startswith("Be kind.") for text in systems)
    schemas = [
        openai["response_format"]["json_schema"]["schema"],
        anthropic["output_config"]["format"]["schema"],
        google["generationConfig"]["responseJsonSchema"],
    ]
    assert schemas[0] == schemas[1] == schemas[2]
    assert provider.paths[2:] == ["/v1/messages", "/v1/models/test-model:generateContent"]


@pytest.mark.parametrize(
    "reply",
    [
        Reply(status=503, content="Busy."),
        Reply(status=429, content="Slow down."),
        Reply(status=401, content="No such key."),
        Reply(status=404, content="No such model."),
        Reply(status=400, content="Too long.", error_code="context_length_exceeded"),
        Reply(status=429, content="Pay.", error_code="insufficient_quota"),
        Reply(cut=True),
        Reply(raw=b"<html>"),
        Reply(hang=True),
    ],
)
async def test_a_model_that_does_not_answer_is_followed_by_the_next(
    kind: AiKind, provider: ProviderServer, other: ProviderServer, reply: Reply
) -> None:
    provider.default = reply
    other.default = Reply(content="Forty-two.")

    result = await ask(kind, settings(provider, other, timeout_seconds=0.5))

    assert isinstance(result, Value)
    assert result.value == "Forty-two."
    assert (provider.call_count, other.call_count) == (1, 1)


@pytest.mark.parametrize(
    "reply", [Reply(refusal="No."), Reply(content="Half", finish_reason="length")]
)
async def test_an_answer_that_nobody_likes_is_not_asked_of_the_next(
    kind: AiKind, provider: ProviderServer, other: ProviderServer, reply: Reply
) -> None:
    provider.default = reply

    result = await ask(kind, settings(provider, other))

    assert isinstance(result, Failure)
    assert other.call_count == 0


async def test_a_chain_that_fails_tells_of_every_model_and_is_passing_where_one_is(
    kind: AiKind, provider: ProviderServer, other: ProviderServer
) -> None:
    provider.default = Reply(status=429, content="Slow down.", headers={"retry-after": "9"})
    other.default = Reply(status=401, content="No such key.")

    result = await ask(kind, settings(provider, other))

    assert isinstance(result, Failure)
    assert (result.code, result.transient) == ("rate_limited", True)
    assert result.retry_after_seconds == 9
    assert "one:test-model: The provider asks to slow down: Slow down." in result.message
    assert "two:test-model: Check your API key. Provider: No such key." in result.message


async def test_tokens_of_an_answer_that_did_not_fit_count_when_the_next_model_answers(
    kind: AiKind, provider: ProviderServer, other: ProviderServer
) -> None:
    provider.then(Reply(content="not a number"), Reply(status=503))

    result = await ask(kind, settings(provider, other), NUMBER)

    assert isinstance(result, Value)
    assert result.usage == Usage(input_tokens=22, output_tokens=14, model="test-model")


async def test_the_other_name_of_a_bound_is_learnt(kind: AiKind, provider: ProviderServer) -> None:
    refusal = Reply(
        status=400,
        content="Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.",
    )
    provider.respond = lambda call: refusal if "max_tokens" in call else None

    first = await ask(kind, settings(provider, provider="openai-compatible"))
    second = await ask(kind, settings(provider, provider="openai-compatible"))

    assert isinstance(first, Value)
    assert first == second
    assert provider.call_count == 3, "it is remembered"


async def test_a_provider_is_not_asked_the_same_for_ever(
    kind: AiKind, provider: ProviderServer
) -> None:
    provider.default = Reply(status=400, content="response_format and max_tokens: unsupported")

    result = await ask(kind, settings(provider), NUMBER)

    assert isinstance(result, Failure)
    assert result.code == "request_rejected"
    assert provider.call_count == 2


async def test_a_connections_headers_go_with_each_call(
    kind: AiKind, provider: ProviderServer
) -> None:
    connection = {"base_url": provider.base_url, "headers": {"X_Team": "blue"}}
    ai = AiSettings.model_validate({"connections": {"one": connection}, "model": "one:m"})

    result = await ask(kind, ai)

    assert isinstance(result, Value)
    assert provider.headers_seen[0]["x-team"] == "blue"
    assert "authorization" not in provider.headers_seen[0]


async def test_an_answer_in_the_authors_own_shape_is_asked_for_and_repaired(
    kind: AiKind, provider: ProviderServer
) -> None:
    shape = {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}
    provider.then(
        Reply(content='{"found": true, "value": {"n": "seven"}}'),
        Reply(content='{"found": true, "value": {"n": 7}}'),
    )

    result = await ask(kind, settings(provider), ColumnType(name=TypeName.JSON), schema=shape)

    assert isinstance(result, Value)
    assert result.value == {"n": 7}
    assert "/n: " in provider.calls[1]["messages"][-1]["content"]


async def test_a_cell_says_what_of_its_input_the_model_did_not_see(
    kind: AiKind, provider: ProviderServer
) -> None:
    page = "word " * 1_000
    request = ComputeRequest(
        text=f"Summarise {page}",
        inputs={"page": page},
        source=None,
        output_type=TEXT,
        options={"input_chars_max": 1_000},
    )

    (result,) = await kind.compute(
        [request], ComputeContext(settings=Settings(ai=settings(provider)), files=None)
    )

    assert isinstance(result, Value)
    assert result.note
    assert "of 5,000 characters of page were left out" in result.note
    assert len(provider.calls[0]["messages"][-1]["content"]) <= 1_000


async def test_answers_of_a_server_of_ones_own_cost_nothing(
    kind: AiKind, provider: ProviderServer
) -> None:
    provider.default = Reply(content="Yes.", input_tokens=1_000_000)
    for name, cost_usd in (("ollama", 0.0), ("openai-compatible", 0.15)):
        ai = settings(provider, provider=name, model="one:gpt-4o-mini", models={})

        result = await ask(kind, ai)

        assert isinstance(result, Value)
        assert result.usage
        assert result.usage.cost_usd == pytest.approx(cost_usd, abs=0.01)


async def test_a_call_under_way_when_its_worker_ends_is_told_to_nobody(
    kind: AiKind, provider: ProviderServer
) -> None:
    provider.default = Reply(hang=True)
    call = asyncio.create_task(ask(kind, settings(provider, timeout_seconds=30)))
    while not provider.concurrent:
        await asyncio.sleep(0.01)

    await kind.aclose()
    result = await call

    assert isinstance(result, Failure)
    assert (result.code, result.transient) == ("worker_fault", True)


async def test_an_answer_that_is_too_large_fails_its_cell_alone(
    kind: AiKind, provider: ProviderServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MODEL_ANSWER_BYTES_MAX", 1_000)
    provider.then(*[Reply(content="word " * 1_000) for _ in range(15)], Reply(content="Yes."))

    results = [await ask(kind, settings(provider)) for _ in range(16)]

    codes = [result.code for result in results if isinstance(result, Failure)]
    assert codes == ["too_large"] * 15
    assert isinstance(results[-1], Value), "the breaker heard nothing of it"


async def test_answers_nested_without_end_are_malformed(
    kind: AiKind, provider: ProviderServer
) -> None:
    deep = b"[" * 100_000 + b"]" * 100_000
    for raw in (deep, b'{"choices": ' + deep + b"}", b'{"x": ' + deep + b', "choices": []}'):
        provider.then(Reply(raw=raw))

        result = await ask(kind, settings(provider))

        assert isinstance(result, Failure)
        assert result.code == "answer_malformed", result.message
