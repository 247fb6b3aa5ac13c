"""Calls to model providers through pydantic-ai's direct requests, over aiohttp.

One connection pool for each endpoint and key; no retries below the queue's own. A call that fails
in any way is a `Failure`; only cancellation passes through.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import httpx2
import msgspec
from genai_prices import calc_price
from openai import AsyncOpenAI, DefaultAioHttpClient
from pydantic_ai import exceptions
from pydantic_ai.direct import model_request
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIChatModelSettings
from pydantic_ai.output import OutputObjectDefinition
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider

from everfill.compute.ai_failures import explain, refuses_schema, shorten
from everfill.compute.answers import answer_schema, instructions, read_answer
from everfill.compute.options import integer_option, number_option, text_option
from everfill.compute.protocol import ComputeRequest, ComputeResult, Failure, NotFound, Usage, Value
from everfill.kernel.config import AiSettings
from everfill.kernel.errors import InvalidError
from everfill.tables.types import ColumnType, TypeName
from everfill.tables.values import JsonValue

__all__ = ["AiClient"]

_OPENAI_URL: Final = "https://api.openai.com/v1"
_NO_KEY: Final = "not-needed"
_CONNECTIONS_MAX: Final = 1_000
"""The worker's slots bound the calls; the pool must never be what waits."""
_ANSWERS: Final = 2
"""The first, and one more that is told what was wrong with it."""
_WORDS_QUOTED: Final = 200


@dataclass(slots=True)
class _Spent:
    """What the calls of one cell spent so far."""

    model: str
    base_url: str
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float = 0.0

    def add(self, response: ModelResponse) -> None:
        self.input_tokens += response.usage.input_tokens
        self.output_tokens += response.usage.output_tokens
        self.model = response.model_name or self.model
        self.cost_usd += _price_usd(response, self.model, self.base_url)

    def usage(self) -> Usage:
        return Usage(
            input_tokens=self.input_tokens,
            output_tokens=self.output_tokens,
            cost_usd=self.cost_usd,
            model=self.model,
        )


@dataclass(slots=True)
class AiClient:
    """The models of one event loop."""

    _clients: dict[tuple[str, str], AsyncOpenAI] = field(
        default_factory=dict[tuple[str, str], AsyncOpenAI]
    )
    _models: dict[tuple[str, str, str], OpenAIChatModel] = field(
        default_factory=dict[tuple[str, str, str], OpenAIChatModel]
    )

    _schemaless: set[str] = field(default_factory=set[str])
    """Endpoints that refuse JSON schemas; their models have the schema in words only."""

    async def answer(self, request: ComputeRequest, settings: AiSettings) -> ComputeResult:
        """Ask until an answer fits the column's type, at most twice."""
        name = text_option(request.options, "model") or settings.model
        base_url = settings.base_url or _OPENAI_URL
        secret = settings.api_key.get_secret_value() if settings.api_key else None
        spent = _Spent(name, base_url)
        try:
            model = self._model(base_url, secret or _NO_KEY, name)
            return await self._converse(model, request, settings, spent)
        except exceptions.AgentRunError as error:
            failure = explain(error, secret)
        except TimeoutError:
            seconds = f"{settings.timeout_seconds:g}"
            failure = Failure(
                code="timeout", message=f"No whole answer within {seconds} s.", transient=True
            )
        except (httpx2.HTTPError, OSError) as error:
            message = shorten(f"No connection to the provider: {error!r}", secret)
            failure = Failure(code="connection_failed", message=message, transient=True)
        return _with_usage(failure, spent)

    async def aclose(self) -> None:
        """Close every connection."""
        clients = list(self._clients.values())
        self._clients.clear()
        self._models.clear()
        for client in clients:
            await client.close()

    async def _converse(
        self,
        model: OpenAIChatModel,
        request: ComputeRequest,
        settings: AiSettings,
        spent: _Spent,
    ) -> ComputeResult:
        messages = _opening(request)
        complaint = ""
        for _ in range(_ANSWERS):
            async with asyncio.timeout(settings.timeout_seconds):
                response = await self._ask(model, messages, request, settings)
            spent.add(response)
            if failure := _unfinished(response):
                return _with_usage(failure, spent)
            try:
                answer = read_answer(response.text or "", request.output_type)
            except InvalidError as error:
                complaint = f"{error.message} It was: {(response.text or '')[:_WORDS_QUOTED]}"
                messages += [response, _repair(error.message)]
                continue
            return _with_usage(answer, spent)
        message = shorten(f"No answer that fits the column, asked twice. {complaint}")
        return _with_usage(Failure(code="answer_invalid", message=message, transient=False), spent)

    async def _ask(
        self,
        model: OpenAIChatModel,
        messages: list[ModelMessage],
        request: ComputeRequest,
        settings: AiSettings,
    ) -> ModelResponse:
        """One call, or two where the endpoint turns out to know no JSON schemas."""
        schema = (
            answer_schema(request.output_type) if model.base_url not in self._schemaless else None
        )
        model_settings = _model_settings(request.options, settings)
        try:
            return await model_request(
                model,
                messages,
                model_settings=model_settings,
                model_request_parameters=_parameters(request.output_type, schema),
                instrument=False,
            )
        except exceptions.ModelRequestRejectedError as error:
            if schema is None or not refuses_schema(error):
                raise
        self._schemaless.add(model.base_url)
        return await model_request(model, messages, model_settings=model_settings, instrument=False)

    def _model(self, base_url: str, key: str, name: str) -> OpenAIChatModel:
        if (model := self._models.get((base_url, key, name))) is None:
            client = self._client(base_url, key)
            provider = (
                OpenAIProvider(openai_client=client)
                if base_url == _OPENAI_URL
                else OpenAICompatibleProvider("openai-compatible", openai_client=client)
            )
            model = self._models[base_url, key, name] = OpenAIChatModel(name, provider=provider)
        return model

    def _client(self, base_url: str, key: str) -> AsyncOpenAI:
        if (client := self._clients.get((base_url, key))) is None:
            limits = httpx2.Limits(max_connections=_CONNECTIONS_MAX, keepalive_expiry=30)
            http_client = DefaultAioHttpClient(limits=limits, timeout=None)
            client = self._clients[base_url, key] = AsyncOpenAI(
                base_url=base_url, api_key=key, max_retries=0, http_client=http_client
            )
        return client


def _opening(request: ComputeRequest) -> list[ModelMessage]:
    own = text_option(request.options, "system")
    system = "\n\n".join(filter(None, (own, instructions(request.output_type))))
    return [
        ModelRequest(parts=[SystemPromptPart(content=system), UserPromptPart(content=request.text)])
    ]


def _repair(complaint: str) -> ModelRequest:
    words = f"{complaint} Answer again, in the form that was asked for."
    return ModelRequest(parts=[UserPromptPart(content=words)])


def _model_settings(options: Mapping[str, JsonValue], ai: AiSettings) -> OpenAIChatModelSettings:
    tokens = integer_option(
        options, "max_output_tokens", low=1, high=2**31, default=ai.max_output_tokens
    )
    given = OpenAIChatModelSettings(timeout=ai.timeout_seconds)
    if tokens is not None:
        given["max_tokens"] = tokens
    if (temperature := number_option(options, "temperature", low=0, high=2)) is not None:
        given["temperature"] = temperature
    return given


def _parameters(
    output_type: ColumnType, schema: dict[str, JsonValue] | None
) -> ModelRequestParameters:
    if schema is None:
        return ModelRequestParameters(output_mode="text")
    strict = output_type.name is not TypeName.JSON
    output = OutputObjectDefinition(json_schema=dict(schema), name="answer", strict=strict)
    return ModelRequestParameters(output_mode="native", output_object=output)


def _price_usd(response: ModelResponse, model: str, base_url: str) -> float:
    """What the call cost: at the endpoint's own prices, else at the model's usual ones, else 0."""
    for endpoint in (base_url, None):
        try:
            price = calc_price(response.usage, model, provider_api_url=endpoint)
        except LookupError:
            continue
        return float(price.total_price)
    return 0.0


def _unfinished(response: ModelResponse) -> Failure | None:
    """The failure of an answer that stopped early: cut off, or refused."""
    if response.finish_reason == "length":
        message = "The answer was cut off; raise max_output_tokens or ask for less."
        return Failure(code="answer_truncated", message=message, transient=False)
    if response.finish_reason == "content_filter":
        words = (response.provider_details or {}).get("refusal") or response.text or "no reason"
        message = shorten(f"The model refused: {words}")
        return Failure(code="refused", message=message, transient=False)
    return None


def _with_usage(result: Value | NotFound | Failure, spent: _Spent) -> ComputeResult:
    if not spent.input_tokens and not spent.output_tokens:
        return result
    return msgspec.structs.replace(result, usage=spent.usage())
