"""The one settings tree, frozen once read.

A value comes from the first place that names it: a flag, `EVERFILL_SECTION__KEY` in the
environment, `everfill.toml` in the working directory (or the file `EVERFILL_CONFIG` names), the
default. Unknown keys are refused wherever they stand.
"""

from __future__ import annotations

import os
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, cast

from platformdirs import user_data_path
from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError

from everfill.kernel import limits
from everfill.kernel.errors import InvalidError

__all__ = [
    "AiSettings",
    "ApiSettings",
    "BlobSettings",
    "ConnectionSettings",
    "FetchSettings",
    "JanitorSettings",
    "LimitSettings",
    "PostgresSettings",
    "Provider",
    "RedisSettings",
    "Setting",
    "Settings",
    "TemporalSettings",
    "WorkerSettings",
    "load_settings",
    "setting_sources",
]

ENV_PREFIX: Final = "EVERFILL_"
CONFIG_FILE_NAME: Final = "everfill.toml"
_ENV_RESERVED: Final = frozenset({"EVERFILL_CONFIG", "EVERFILL_DEBUG"})


Provider: TypeAlias = Literal[
    "openai",
    "anthropic",
    "google",
    "mistral",
    "groq",
    "openrouter",
    "azure",
    "bedrock",
    "ollama",
    "vllm",
    "lmstudio",
    "openai-compatible",
]


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class PostgresSettings(_Section):
    """Where the tables and the queue live."""

    url: SecretStr | None = Field(
        default=None, description="Outside server; unset: the embedded one."
    )
    pool_max: int = Field(default=10, ge=1, le=200, description="Connections of one process.")


class TemporalSettings(_Section):
    """Where the setup workflows and the janitor run."""

    address: str | None = Field(default=None, description="host:port; unset: the embedded one.")
    namespace: str = Field(default="default", min_length=1)
    task_queue: str = Field(default="everfill", min_length=1)
    api_key: SecretStr | None = None
    tls: bool = False


class RedisSettings(_Section):
    """The transient bus; it may be flushed at any moment."""

    url: SecretStr | None = Field(
        default=None, description="Outside server; unset: the embedded one."
    )


class BlobSettings(_Section):
    """Where values over 1 MB and files are kept."""

    url: str | None = Field(
        default=None, description="obstore URL; unset: a folder of the data folder."
    )


class WorkerSettings(_Section):
    """One cell worker."""

    slots: int = Field(default=20, ge=1, le=1_000, description="Remote calls under way at once.")
    lease_seconds: float = Field(default=30.0, ge=0.5, le=limits.LEASE_SECONDS_MAX)
    poll_seconds: float = Field(
        default=2.0, gt=0, le=60, description="Safety net under notifications."
    )
    drain_seconds: float = Field(default=30.0, ge=0, le=600)
    processes: int = Field(
        default=1, ge=1, le=64, description="Cell workers that `up` and `fill` start."
    )


class JanitorSettings(_Section):
    """The sweeper of stuck work."""

    tick_seconds: float = Field(default=30.0, ge=0.2, le=600)


class LimitSettings(_Section):
    """Defaults of what a collection or a namespace may have in flight, in cells."""

    collection_cap: int = Field(default=limits.COLLECTION_CAP_CELLS, ge=1)
    namespace_cap: int = Field(default=limits.NAMESPACE_CAP_CELLS, ge=1)


class ConnectionSettings(_Section):
    """How to reach a model provider; whatever is left out is as everybody reaches it."""

    provider: Provider | None = Field(
        default=None,
        description="Unset: the provider of the connection's own name, else openai-compatible.",
    )
    base_url: str | None = Field(default=None, pattern=r"^https?://[^\s/?#]+")
    api_key: SecretStr | None = Field(
        default=None, description="Unset: the provider's customary variable (OPENAI_API_KEY, …)."
    )
    headers: dict[str, SecretStr] = Field(default={}, description="Sent with each call.")
    requests_per_minute: float | None = Field(
        default=None,
        gt=0,
        description="To each of its models, of all workers together; unset: as many as it takes.",
    )


class AiSettings(_Section):
    """The models behind columns of kind `ai`."""

    base_url: str | None = Field(
        default=None,
        pattern=r"^https?://[^\s/?#]+",
        description="An OpenAI-compatible endpoint for models named without a connection, such as"
        " http://localhost:11434/v1; unset: OpenAI.",
    )
    api_key: SecretStr | None = Field(
        default=None, description="For that endpoint; unset, for OpenAI: OPENAI_API_KEY."
    )
    model: str = Field(
        default="gpt-5-mini",
        min_length=1,
        description="Of columns that name none: CONNECTION:MODEL, an alias, or a model.",
    )
    models: dict[str, tuple[str, ...]] = Field(
        default={},
        description="Aliases: each a chain of models, asked in turn until one answers.",
    )
    connections: dict[str, ConnectionSettings] = Field(
        default={}, description="More endpoints, and keys of the known ones, by name."
    )
    timeout_seconds: float = Field(default=120.0, gt=0, le=3_600)
    patience_seconds: float = Field(
        default=600.0,
        ge=1,
        le=3_600,
        description="How long a cell waits for its turn while a provider asks to slow down,"
        " before that counts as a failed try.",
    )
    max_output_tokens: int = Field(default=4_096, ge=1)
    input_chars_max: int = Field(
        default=400_000,
        ge=1_000,
        description="Of a prompt: of an input that is longer only a part is sent, and its cell says"
        " so. About 100,000 tokens.",
    )


class FetchSettings(_Section):
    """Bounds of `fetch`."""

    timeout_seconds: float = Field(default=30.0, gt=0, le=600)
    size_max_bytes: int = Field(default=20_000_000, ge=1)
    redirects_max: int = Field(default=5, ge=0, le=20)
    allow_private: tuple[str, ...] = Field(
        default=(), description="Hosts or networks (CIDR) that the SSRF guard lets through."
    )


class ApiSettings(_Section):
    """The HTTP API."""

    host: str = Field(default="127.0.0.1", min_length=1)
    port: int = Field(default=8_420, ge=0, le=65_535)


class Settings(_Section):
    """The whole tree."""

    data_dir: Path = Field(
        default_factory=lambda: user_data_path("everfill", appauthor=False),
        description="Everything the embedded servers keep.",
    )
    postgres: PostgresSettings = PostgresSettings()
    temporal: TemporalSettings = TemporalSettings()
    redis: RedisSettings = RedisSettings()
    blobs: BlobSettings = BlobSettings()
    worker: WorkerSettings = WorkerSettings()
    janitor: JanitorSettings = JanitorSettings()
    limits: LimitSettings = LimitSettings()
    ai: AiSettings = AiSettings()
    fetch: FetchSettings = FetchSettings()
    api: ApiSettings = ApiSettings()


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One leaf of the tree, as `everfill config show` prints it (secrets are masked)."""

    key: str
    value: str
    source: str


def load_settings(flags: dict[str, Any] | None = None) -> Settings:
    """Read the settings tree.

    Args:
        flags: Dotted keys to values, highest precedence; None values count as not given.

    Raises:
        InvalidError: `config_invalid`, with the key, its source and the reason.
    """
    layers = _layers(flags)
    tree: dict[str, Any] = {}
    for _, values in layers:
        for key, value in values.items():
            _plant(tree, key, value)
    try:
        return Settings.model_validate(tree)
    except ValidationError as error:
        raise _explain(error, layers) from None


def setting_sources(flags: dict[str, Any] | None = None) -> list[Setting]:
    """Every leaf of the settings tree with its value and where it came from."""
    settings = load_settings(flags)
    origin = {key: name for name, values in _layers(flags) for key in values}
    return [
        Setting(key=key, value=value, source=origin.get(key, "default"))
        for key, value in _leaves(settings)
    ]


def _layers(flags: dict[str, Any] | None) -> list[tuple[str, dict[str, Any]]]:
    """Lowest precedence first."""
    path = Path(os.environ.get("EVERFILL_CONFIG", CONFIG_FILE_NAME))
    given = {key: value for key, value in (flags or {}).items() if value is not None}
    return [(str(path), _file_layer(path)), ("environment", _env_layer()), ("flag", given)]


def _file_layer(path: Path) -> dict[str, Any]:
    if not path.is_file():
        if "EVERFILL_CONFIG" in os.environ:
            message = f"EVERFILL_CONFIG names {path}, and there is no such file."
            raise InvalidError("config_invalid", message, hint="Correct or unset it.")
        return {}
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidError("config_invalid", f"{path} is not valid TOML: {error}.") from None
    return dict(_flatten(document))


def _env_layer() -> dict[str, Any]:
    return {
        name.removeprefix(ENV_PREFIX).lower().replace("__", "."): value
        for name, value in os.environ.items()
        if name.startswith(ENV_PREFIX) and name not in _ENV_RESERVED
    }


def _flatten(document: dict[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    pairs: list[tuple[str, Any]] = []
    for key, value in document.items():
        if isinstance(value, dict):
            pairs += _flatten(cast("dict[str, Any]", value), f"{prefix}{key}.")
        else:
            pairs.append((f"{prefix}{key}", value))
    return pairs


def _plant(tree: dict[str, Any], key: str, value: object) -> None:
    *sections, leaf = key.split(".")
    for section in sections:
        tree = tree.setdefault(section, {})
    if isinstance(value, str) and (leaf == "allow_private" or sections[-2:] == ["ai", "models"]):
        value = tuple(part.strip() for part in value.split(",") if part.strip())
    tree[leaf] = value


def _leaves(model: BaseModel, prefix: str = "") -> list[tuple[str, str]]:
    pairs: list[tuple[str, str]] = []
    for name in type(model).model_fields:
        pairs += _leaf(getattr(model, name), f"{prefix}{name}")
    return pairs


def _leaf(value: object, key: str) -> list[tuple[str, str]]:
    if isinstance(value, BaseModel):
        return _leaves(value, f"{key}.")
    if isinstance(value, dict):
        parts = cast("dict[str, object]", value)
        return [pair for name, part in parts.items() for pair in _leaf(part, f"{key}.{name}")]
    if isinstance(value, tuple):
        return [(key, ", ".join(map(str, cast("tuple[object, ...]", value))))]
    return [(key, "" if value is None else str(value))]


def _explain(error: ValidationError, layers: list[tuple[str, dict[str, Any]]]) -> InvalidError:
    first = error.errors(include_url=False, include_input=False)[0]
    key = ".".join(str(part) for part in first["loc"])
    source = next((name for name, values in reversed(layers) if key in values), "settings")
    reason = "no such setting" if first["type"] == "extra_forbidden" else first["msg"]
    hint = "See `everfill config show` for every key."
    return InvalidError("config_invalid", f"{key} (from {source}): {reason}.", hint=hint)
