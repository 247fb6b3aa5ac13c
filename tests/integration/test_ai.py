"""The `ai` kind against a provider of our own."""

from __future__ import annotations

import pytest
from pydantic import SecretStr

from everfill.compute.ai import AiKind
from everfill.compute.protocol import (
    ComputeContext,
    ComputeRequest,
    ComputeResult,
    Failure,
    NotFound,
    Usage,
    Value,
)
from everfill.kernel import limits
from everfill.kernel.config import AiSettings, Settings
from everfill.tables.types import TEXT, ColumnType, TypeName
from provider import ProviderServer, Reply

KEY = "sk-test-0123456789abcdef"
NUMBER = ColumnType(name=TypeName.NUMBER)
MOOD = ColumnType(name=TypeName.CHOICE, choices=("Good", "Bad"))
TAGS = ColumnType(name=TypeName.CHOICES, choices=("red", "green"), free=True)


def context(base_url: str | None, *, key: str | None = KEY, timeout: float = 10) -> ComputeContext:
    ai = AiSettings(
        base_url=base_url,
        api_key=SecretStr(key) if key else None,
        timeout_seconds=timeout,
        patience_seconds=1,
        model="test-model",
    )
    return ComputeContext(settings=Settings(ai=ai), files=None)


async def ask(
    kind: AiKind,
    where: ComputeContext,
    prompt: str = "How much?",
    output_type: ColumnType = TEXT,
    **options: object,
) -> ComputeResult:
    request = ComputeRequest(
        text=prompt, inputs={}, source=None, output_type=output_type, options=options
    )
    (result,) = await kind.compute([request], where)
    return result


async def test_a_text_column_takes_the_answer_as_it_is(
    kind: AiKind, provider: ProviderServer
) -> None:
    provider.then(Reply(content="Forty-two.\n"))

    result = await ask(kind, context(provider.base_url))

    usage = Usage(input_tokens=11, output_tokens=7, model="test-model")
    assert result == Value(value="Forty-two.", usage=usage)
    assert provider.calls[0]["messages"][-1] == {"role": "user", "content": "How much?"}
    assert "response_format" not in provider.calls[0]
    assert provider.headers_seen[0]["authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize(
    ("output_type", "answer", "value"),
    [
        (NUMBER, '{"found": true, "reason": null, "value": 42.5}', 42.5),
        (ColumnType(name=TypeName.BOOLEAN), '{"found": true, "value": false}', False),
        (ColumnType(name=TypeName.DATE), '{"found": true, "value": "2026-02-28"}', "2026-02-28"),
        (MOOD, '{"found": true, "reason": null, "value": "good"}', "Good"),
        (TAGS, '{"found": true, "value": ["Red", "blue"]}', ["red", "blue"]),
        (ColumnType(name=TypeName.JSON), '{"found": true, "value": {"a": [1]}}', {"a": [1]}),
        (NUMBER, '```json\n{"found": true, "value": 3}\n```', 3),
        (NUMBER, '{"value": 3}', 3),
    ],
)
async def test_a_typed_column_gets_a_value_of_its_type(
    kind: AiKind, provider: ProviderServer, output_type: ColumnType, answer: str, value: object
) -> None:
    provider.then(Reply(content=answer))

    result = await ask(kind, context(provider.base_url), output_type=output_type)

    assert isinstance(result, Value)
    assert result.value == value
    assert provider.calls[0]["response_format"]["type"] == "json_schema"


@pytest.mark.parametrize("output_type", [NUMBER, MOOD, TAGS, ColumnType(name=TypeName.DATE)])
async def test_an_answer_made_from_the_schema_alone_is_accepted(
    kind: AiKind, provider: ProviderServer, output_type: ColumnType
) -> None:
    result = await ask(kind, context(provider.base_url), output_type=output_type)

    assert isinstance(result, Value)


async def test_a_model_may_say_that_the_inputs_hold_no_answer(
    kind: AiKind, provider: ProviderServer
) -> None:
    provider.then(Reply(content='{"found": false, "reason": "no price in it", "value": null}'))

    result = await ask(kind, context(provider.base_url), output_type=NUMBER)

    usage = Usage(input_tokens=11, output_tokens=7, model="test-model")
    assert result == NotFound(reason="no price in it", usage=usage)


@pytest.mark.parametrize(
    ("bad", "complaint"),
    [
        ('{"found": true, "value": "Mediocre"}', "'Mediocre' is not one of: Good, Bad."),
        ('{"found": true, "value": "Go', "not valid JSON"),
        ("I think it is good.", "not valid JSON"),
        ('{"found": true, "value": null}', "value is null"),
        ("[1]", "not a JSON object"),
    ],
)
async def test_an_answer_that_does_not_fit_is_asked_for_once_more(
    kind: AiKind, provider: ProviderServer, bad: str, complaint: str
) -> None:
    provider.then(Reply(content=bad), Reply(content='{"found": true, "value": "Bad"}'))

    result = await ask(kind, context(provider.base_url), output_type=MOOD)

    usage = Usage(input_tokens=22, output_tokens=14, model="test-model")
    assert result == Value(value="Bad", usage=usage)
    *_, said, told = provider.calls[1]["messages"]
    assert said == {"role": "assistant", "content": bad}
    assert complaint in told["content"]


async def test_a_second_answer_that_does_not_fit_fails_for_good_and_says_what_it_was(
    kind: AiKind, provider: ProviderServer
) -> None:
    provider.default = Reply(content='{"found": true, "value": "Mediocre"}')

    result = await ask(kind, context(provider.base_url), output_type=MOOD)

    assert isinstance(result, Failure)
    assert (result.code, result.transient) == ("answer_invalid", False)
    assert "Mediocre" in result.message
    assert "Good, Bad" in result.message
    assert result.usage == Usage(input_tokens=22, output_tokens=14, model="test-model")
    assert provider.call_count == 2


async def test_a_cut_off_answer_is_no_answer_and_its_tokens_count(
    kind: AiKind, provider: ProviderServer
) -> None:
    provider.then(Reply(content="The first half of", finish_reason="length"))

    result = await ask(kind, context(provider.base_url))

    assert isinstance(result, Failure)
    assert (result.code, result.transient) == ("answer_truncated", False)
    assert "max_output_tokens" in result.message
    assert result.usage == Usage(input_tokens=11, output_tokens=7, model="test-model")


async def test_a_refusal_is_told_in_the_models_words(
    kind: AiKind, provider: ProviderServer
) -> None:
    provider.then(Reply(refusal="I cannot help with that."))

    result = await ask(kind, context(provider.base_url), output_type=NUMBER)

    assert isinstance(result, Failure)
    assert (result.code, result.transient) == ("refused", False)
    assert "I cannot help with that." in result.message


async def test_too_many_requests_is_passing_and_says_how_long_to_wait(
    kind: AiKind, provider: ProviderServer
) -> None:
    provider.then(Reply(status=429, content="Slow down.", headers={"retry-after": "7"}))

    result = await ask(kind, context(provider.base_url))

    assert result == Failure(
        code="rate_limited",
        message="The provider asks to slow down: Slow down.",
        transient=True,
        retry_after_seconds=7,
    )
    assert provider.call_count == 1, "the queue retries, not the client"


@pytest.mark.parametrize(
    ("reply", "code", "transient"),
    [
        (Reply(status=500, content="Oops."), "provider_failed", True),
        (Reply(status=502, raw=b"<html>Bad gateway</html>"), "provider_failed", True),
        (Reply(status=503, content="Overloaded."), "provider_failed", True),
        (Reply(status=408, content="Too slow."), "provider_failed", True),
        (Reply(status=401, content="No such key."), "key_invalid", False),
        (Reply(status=403, content="Not allowed."), "not_allowed", False),
        (Reply(status=404, content="No such model."), "model_not_found", False),
        (Reply(status=422, content="Bad shape."), "request_rejected", False),
        (
            Reply(status=400, content="Too many tokens.", error_code="context_length_exceeded"),
            "input_too_long",
            False,
        ),
        (
            Reply(status=429, content="Pay first.", error_code="insufficient_quota"),
            "quota_exceeded",
            False,
        ),
        (Reply(raw=b'{"id": "chatcmpl-1", "choi'), "answer_malformed", True),
        (Reply(raw=b"<html>It works!</html>"), "answer_malformed", True),
        (Reply(raw=b'{"id": "x", "object": "chat.completion"}'), "answer_malformed", True),
        (Reply(cut=True), "connection_failed", True),
    ],
)
async def test_a_provider_fault_becomes_a_failure_of_the_right_kind(
    kind: AiKind, provider: ProviderServer, reply: Reply, code: str, transient: bool
) -> None:
    provider.then(reply)

    result = await ask(kind, context(provider.base_url), output_type=NUMBER)

    assert isinstance(result, Failure)
    assert (result.code, result.transient) == (code, transient), result.message
    assert (reply.content or "") in result.message
    assert ("check your api key" in result.message.lower()) == (code == "key_invalid")
    assert provider.call_count == 1


async def test_a_provider_that_does_not_answer_in_time_is_a_passing_failure(
    kind: AiKind, provider: ProviderServer
) -> None:
    provider.then(Reply(hang=True))

    result = await ask(kind, context(provider.base_url, timeout=0.2))

    assert isinstance(result, Failure)
    assert (result.code, result.transient) == ("timeout", True)


async def test_a_provider_that_is_not_there_is_a_passing_failure(kind: AiKind) -> None:
    async with ProviderServer() as gone:
        pass

    result = await ask(kind, context(gone.base_url))

    assert isinstance(result, Failure)
    assert (result.code, result.transient) == ("connection_failed", True)


async def test_no_key_stands_in_a_message_and_long_messages_are_cut(
    kind: AiKind, provider: ProviderServer
) -> None:
    words = f"Incorrect API key provided: {KEY}, or sk-other-9876543210. {'blah ' * 500}"
    provider.then(Reply(status=401, content=words))

    result = await ask(kind, context(provider.base_url))

    assert isinstance(result, Failure)
    assert KEY not in result.message
    assert "sk-other" not in result.message
    assert len(result.message) == limits.ERROR_MESSAGE_CHARS_MAX


async def test_without_settings_a_cell_says_how_to_set_a_provider(kind: AiKind) -> None:
    kind.check(NUMBER, {})

    result = await ask(kind, context(None, key=None))

    assert isinstance(result, Failure)
    assert (result.code, result.transient) == ("ai_not_configured", False)
    assert "EVERFILL_AI__BASE_URL" in result.message
    assert "EVERFILL_AI__API_KEY" in result.message


async def test_options_decide_model_temperature_length_and_system(
    kind: AiKind, provider: ProviderServer
) -> None:
    where = context(provider.base_url)

    await ask(
        kind, where, model="other-1", temperature=0.5, max_output_tokens=99, system="Be kind."
    )

    call = provider.calls[0]
    assert (call["model"], call["temperature"]) == ("other-1", 0.5)
    assert 99 in (call.get("max_completion_tokens"), call.get("max_tokens"))
    assert call["messages"][0]["role"] == "system"
    assert call["messages"][0]["content"].startswith("Be kind.")


async def test_a_known_model_has_a_price(kind: AiKind, provider: ProviderServer) -> None:
    provider.then(Reply(content="Yes.", input_tokens=1_000_000, output_tokens=0))

    result = await ask(kind, context(provider.base_url), model="gpt-4o-mini")

    assert isinstance(result, Value)
    assert result.usage is not None
    assert result.usage.cost_usd == pytest.approx(0.15)


async def test_an_endpoint_without_a_key_is_called_without_one_of_ours(
    kind: AiKind, provider: ProviderServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-from-the-environment")

    result = await ask(kind, context(provider.base_url, key=None))

    assert isinstance(result, Value)
    assert "environment" not in provider.headers_seen[0].get("authorization", "")


async def test_an_endpoint_that_knows_no_schemas_is_asked_in_words(
    kind: AiKind, provider: ProviderServer
) -> None:
    provider.respond = lambda call: (
        Reply(status=400, content="This response_format type is unavailable now")
        if "response_format" in call
        else Reply(content='{"found": true, "reason": null, "value": 3}')
    )

    first = await ask(kind, context(provider.base_url), output_type=NUMBER)
    second = await ask(kind, context(provider.base_url), output_type=NUMBER)

    assert isinstance(first, Value)
    assert first.value == 3
    assert first == second
    assert provider.call_count == 3, "it is remembered"
    assert '"found"' in provider.calls[1]["messages"][0]["content"]


async def test_an_empty_prompt_is_not_paid_for(kind: AiKind, provider: ProviderServer) -> None:
    result = await ask(kind, context(provider.base_url), prompt=" \n")

    assert isinstance(result, NotFound)
    assert provider.call_count == 0
