"""Which endpoint a model's name means."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from everfill.compute.models.connections import _PROVIDERS, Model, find_models
from everfill.kernel.config import AiSettings, Provider, load_settings
from everfill.kernel.errors import InvalidError

KEYS = {"OPENAI_API_KEY": "o", "ANTHROPIC_API_KEY": "a", "GEMINI_API_KEY": "g"}


def find(name: str | None, environment: dict[str, str] | None = None, **ai: Any) -> list[Model]:
    keys = KEYS if environment is None else environment
    return list(find_models(AiSettings.model_validate(ai), name, keys))


def reached(model: Model) -> tuple[str, str | None, str]:
    return model.connection.base_url, model.connection.key, model.name


@pytest.mark.parametrize(
    ("name", "ai", "expected"),
    [
        # without a word of settings
        (None, {}, ("https://api.openai.com/v1", "o", "gpt-5-mini")),
        ("gpt-5", {}, ("https://api.openai.com/v1", "o", "gpt-5")),
        ("openai:gpt-5", {}, ("https://api.openai.com/v1", "o", "gpt-5")),
        ("anthropic:claude", {}, ("https://api.anthropic.com/v1", "a", "claude")),
        (
            "google:gemini",
            {},
            ("https://generativelanguage.googleapis.com/v1beta", "g", "gemini"),
        ),
        ("ollama:llama3:8b", {}, ("http://localhost:11434/v1", None, "llama3:8b")),
        # the settings' own endpoint
        (None, {"model": "m", "api_key": "k"}, ("https://api.openai.com/v1", "k", "m")),
        ("m", {"base_url": "http://here/v1/"}, ("http://here/v1", None, "m")),
        ("mistral:7b", {"base_url": "http://here"}, ("http://here", None, "mistral:7b")),
        ("ft:gpt:x", {"api_key": "k"}, ("https://api.openai.com/v1", "k", "ft:gpt:x")),
        # connections by name
        (
            "work:m",
            {"connections": {"work": {"base_url": "http://w", "api_key": "k"}}},
            ("http://w", "k", "m"),
        ),
        (
            "work:m",
            {"connections": {"work": {"provider": "anthropic"}}},
            ("https://api.anthropic.com/v1", "a", "m"),
        ),
        (
            "anthropic:m",
            {"connections": {"anthropic": {"api_key": "mine"}}},
            ("https://api.anthropic.com/v1", "mine", "m"),
        ),
        (
            "azure:m",
            {"connections": {"azure": {"base_url": "https://r/openai/v1", "api_key": "k"}}},
            ("https://r/openai/v1", "k", "m"),
        ),
    ],
)
def test_a_name_means_an_endpoint_a_key_and_a_model(
    name: str | None, ai: dict[str, Any], expected: tuple[str, str | None, str]
) -> None:
    (model,) = find(name, **ai)

    assert reached(model) == expected


def test_a_providers_key_goes_to_no_other_address() -> None:
    (model,) = find("openai:m", connections={"openai": {"base_url": "http://proxy"}})

    assert model.connection.key is None


def test_an_alias_is_a_chain_and_may_hold_aliases() -> None:
    aliases = {"best": ("anthropic:a", "cheap"), "cheap": ("openai:b", "ollama:c")}

    names = [model.label for model in find("best", models=aliases)]

    assert names == ["anthropic:a", "openai:b", "ollama:c"]


def test_what_of_a_chain_has_no_key_is_left_out() -> None:
    (model,) = find("best", {}, models={"best": ("anthropic:a", "ollama:b")})

    assert model.label == "ollama:b"


def test_an_alias_of_nothing_says_so() -> None:
    with pytest.raises(InvalidError, match="stands for no model"):
        find("best", models={"best": ()})


def test_a_model_without_a_connection_is_of_the_openai_that_is_configured() -> None:
    (model,) = find("gpt", {}, connections={"openai": {"api_key": "mine"}})

    assert model.connection.key == "mine"


def test_an_alias_within_itself_is_a_model_of_that_name() -> None:
    assert [model.name for model in find("gpt", models={"gpt": ("gpt",)})] == ["gpt"]


def test_the_settings_model_may_be_an_alias() -> None:
    (model,) = find(None, model="default", models={"default": ("anthropic:claude",)})

    assert model.label == "anthropic:claude"


@pytest.mark.parametrize(
    ("name", "ai", "words"),
    [
        ("m", {}, "OPENAI_API_KEY"),
        ("anthropic:m", {}, "EVERFILL_AI__CONNECTIONS__ANTHROPIC__API_KEY, or ANTHROPIC_API_KEY"),
        ("azure:m", {}, "EVERFILL_AI__CONNECTIONS__AZURE__BASE_URL, such as https://RESOURCE."),
        ("mine:m", {"connections": {"mine": {"api_key": "k"}}}, "MINE__BASE_URL"),
    ],
)
def test_what_is_missing_is_named(name: str, ai: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidError) as caught:
        find(name, {}, **ai)

    assert caught.value.code == "ai_not_configured"
    assert words in caught.value.message


def test_keys_and_headers_are_in_no_representation() -> None:
    connection = {"base_url": "http://w", "api_key": "hunter2", "headers": {"X_Team": "hunter3"}}

    (model,) = find("work:m", connections={"work": connection})

    assert model.connection.headers == {"x-team": "hunter3"}
    assert "hunter" not in repr(model)
    assert set(model.connection.secrets) == {"hunter2", "hunter3"}


def test_every_provider_of_the_settings_is_known() -> None:
    assert set(get_args(Provider)) == set(_PROVIDERS)


def test_aliases_and_connections_come_from_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("EVERFILL_AI__MODELS__CHEAP", "groq:llama, ollama:llama")
    monkeypatch.setenv("EVERFILL_AI__CONNECTIONS__GROQ__API_KEY", "k")

    ai = load_settings().ai

    assert [model.label for model in find_models(ai, "cheap", {})] == ["groq:llama", "ollama:llama"]


def test_a_key_from_a_file_loses_its_line_end_and_another_one_is_refused() -> None:
    (model,) = find("m", connections={}, api_key="secret-1\r\n")
    assert model.connection.key == "secret-1"

    with pytest.raises(InvalidError, match="line end") as caught:
        find("m", api_key="secret-1\nsecret-2")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("address", ["http://", "https:///v1", "localhost:8000", "ftp://a"])
def test_an_address_that_is_none_is_refused_where_it_is_set(address: str) -> None:
    with pytest.raises(ValueError, match="base_url"):
        AiSettings.model_validate({"base_url": address})
