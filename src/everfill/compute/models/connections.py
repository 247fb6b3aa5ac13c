"""Which endpoint a model's name means. No I/O.

A name is an alias of the settings (`cheap`), a connection and a model (`work:gpt-5`,
`anthropic:claude-haiku-4-5`), or a model of the connection that the settings themselves describe.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from everfill.compute.models.anthropic import Anthropic
from everfill.compute.models.chat import Chat
from everfill.compute.models.google import Google
from everfill.compute.models.wire import Dialect
from everfill.kernel.config import AiSettings, ConnectionSettings
from everfill.kernel.errors import InvalidError

__all__ = ["Connection", "Model", "find_models"]


class _Provider(NamedTuple):
    """A provider as everybody reaches it."""

    dialect: Dialect
    base_url: str | None
    key_variables: tuple[str, ...] = ()
    needs_key: bool = True
    free: bool = False


_PROVIDERS: Final[Mapping[str, _Provider]] = {
    "openai": _Provider(
        Chat(limit="max_completion_tokens"), "https://api.openai.com/v1", ("OPENAI_API_KEY",)
    ),
    "anthropic": _Provider(Anthropic(), "https://api.anthropic.com/v1", ("ANTHROPIC_API_KEY",)),
    "google": _Provider(
        Google(),
        "https://generativelanguage.googleapis.com/v1beta",
        ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    ),
    "mistral": _Provider(Chat(), "https://api.mistral.ai/v1", ("MISTRAL_API_KEY",)),
    "groq": _Provider(
        Chat(limit="max_completion_tokens"), "https://api.groq.com/openai/v1", ("GROQ_API_KEY",)
    ),
    "openrouter": _Provider(Chat(), "https://openrouter.ai/api/v1", ("OPENROUTER_API_KEY",)),
    "azure": _Provider(
        Chat(key_header="api-key", limit="max_completion_tokens"), None, ("AZURE_OPENAI_API_KEY",)
    ),
    "bedrock": _Provider(Chat(limit="max_completion_tokens"), None, ("AWS_BEARER_TOKEN_BEDROCK",)),
    "ollama": _Provider(Chat(), "http://localhost:11434/v1", needs_key=False, free=True),
    "vllm": _Provider(Chat(), "http://localhost:8000/v1", needs_key=False, free=True),
    "lmstudio": _Provider(Chat(), "http://localhost:1234/v1", needs_key=False, free=True),
    "openai-compatible": _Provider(Chat(), None, needs_key=False),
}
_ADDRESSES: Final = {
    "azure": "https://RESOURCE.openai.azure.com/openai/v1",
    "bedrock": "https://bedrock-runtime.REGION.amazonaws.com/openai/v1",
    "openai-compatible": "http://localhost:8000/v1",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """An endpoint.

    Attributes:
        name: How settings and people call it.
        dialect: Its wire format.
        base_url: Without a slash at its end.
        key: Its secret, as far as there is one.
        headers: Sent with each call.
        rate_max: Calls a second to each of its models; None: as many as it takes.
        free: Whether nobody is paid for its answers: it is a server of one's own.
    """

    name: str
    dialect: Dialect
    base_url: str
    key: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    rate_max: float | None = None
    free: bool = False

    @property
    def secrets(self) -> Sequence[str]:
        """What must stand in no message: the key, and what headers carry."""
        carried = [value.removeprefix("Bearer ") for value in self.headers.values()]
        return [secret for secret in (self.key, *carried) if secret]


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A model behind an endpoint."""

    connection: Connection
    name: str

    @property
    def label(self) -> str:
        """For people."""
        return f"{self.connection.name}:{self.name}"

    @property
    def pace_key(self) -> str:
        """Names what shares one limit: a model, an address and a key; tells nothing of them."""
        words = (self.connection.base_url, self.connection.key or "", self.name)
        return f"pace:{hashlib.sha256(json.dumps(words).encode()).hexdigest()[:32]}"


def find_models(
    settings: AiSettings, name: str | None, environment: Mapping[str, str]
) -> Sequence[Model]:
    """The models that a name stands for, the first one to be asked first.

    What of a chain cannot be reached for want of a key or an address is left out of it.

    Args:
        settings: The `[ai]` section.
        name: As a column gives it; None: the settings' own.
        environment: Where providers' customary variables may hold keys.

    Raises:
        InvalidError: `ai_not_configured` where nothing says how to reach a model, with what to set.
    """
    models: list[Model] = []
    unset: list[InvalidError] = []
    for part in _expand(settings, name or settings.model, ()):
        try:
            models.append(_find_model(settings, part, environment))
        except InvalidError as error:
            unset.append(error)
    if models:
        return models
    if unset:
        raise unset[0]
    message = f"The alias {name or settings.model!r} stands for no model. Give ai.models one."
    raise InvalidError("ai_not_configured", message)


def _expand(settings: AiSettings, name: str, seen: tuple[str, ...]) -> Iterator[str]:
    """An alias' chain, flat; an alias within itself means the model of that name."""
    chain = settings.models.get(name)
    if chain is None or name in seen:
        yield name
        return
    for part in chain:
        yield from _expand(settings, part, (*seen, name))


def _find_model(settings: AiSettings, name: str, environment: Mapping[str, str]) -> Model:
    prefix, colon, rest = name.partition(":")
    given = settings.connections.get(prefix)
    # a server of one's own has models named `mistral:7b`, which are not Mistral's
    known = prefix in _PROVIDERS and settings.base_url is None
    if colon and rest and (given or known):
        return Model(connection=_connect(prefix, given, environment), name=rest)
    return Model(connection=_own_connection(settings, environment), name=name)


def _own_connection(settings: AiSettings, environment: Mapping[str, str]) -> Connection:
    """The one that `ai.base_url` and `ai.api_key` describe; without an address: OpenAI."""
    if settings.base_url is None and settings.api_key is None:
        given = settings.connections.get("openai")
        usual = any(environment.get(name) for name in _PROVIDERS["openai"].key_variables)
        if given is None and not usual:
            raise InvalidError("ai_not_configured", _NOTHING_SET)
        return _connect("openai", given, environment)
    name = "openai" if settings.base_url is None else "openai-compatible"
    given = ConnectionSettings(base_url=settings.base_url, api_key=settings.api_key)
    return _connect(name, given, {})


def _connect(
    name: str, given: ConnectionSettings | None, environment: Mapping[str, str]
) -> Connection:
    given = given or ConnectionSettings()
    provider = given.provider or (name if name in _PROVIDERS else "openai-compatible")
    usual = _PROVIDERS[provider]
    base_url = given.base_url or usual.base_url
    if base_url is None:
        raise _unset(name, "base_url", f"such as {_ADDRESSES[provider]}")
    own = given.api_key.get_secret_value() if given.api_key else None
    at_home = base_url == usual.base_url or usual.base_url is None
    variables = usual.key_variables if at_home else ()  # a key goes to its own provider alone
    key = own or next((environment[v] for v in variables if environment.get(v)), None)
    if key is None and usual.needs_key and at_home and not given.headers:
        raise _unset(name, "api_key", f"or {' or '.join(usual.key_variables)}")
    headers = {
        key.lower().replace("_", "-"): value.get_secret_value()
        for key, value in given.headers.items()
    }
    key = key and key.strip()  # of a file's last line
    _check_printable(name, [key or "", *headers, *headers.values()])
    return Connection(
        name=name,
        dialect=usual.dialect,
        base_url=base_url.rstrip("/"),
        key=key,
        headers=headers,
        rate_max=given.requests_per_minute and given.requests_per_minute / 60,
        free=usual.free,
    )


def _check_printable(name: str, texts: Sequence[str]) -> None:
    if not all(text.isprintable() for text in texts):
        message = (
            f"The key or a header of the connection {name!r} has a line end or the like in it."
        )
        raise InvalidError("ai_not_configured", message)


def _unset(name: str, key: str, example: str) -> InvalidError:
    variable = f"EVERFILL_AI__CONNECTIONS__{name.upper()}__{key.upper()}"
    if not name.isidentifier():  # no variable can be called so
        variable = f"ai.connections.{name}.{key} in everfill.toml"
    message = f"The connection {name!r} has no {key}. Set {variable}, {example}; then reprocess."
    return InvalidError("ai_not_configured", message)


_NOTHING_SET: Final = (
    "No model provider is set. Set EVERFILL_AI__API_KEY (or OPENAI_API_KEY), and "
    "EVERFILL_AI__BASE_URL for any other OpenAI-compatible endpoint, such as "
    "http://localhost:11434/v1, or name a model as anthropic:MODEL; then reprocess."
)
