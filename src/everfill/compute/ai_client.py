"""Answers of models to a column's prompts: asked, read, repaired once, and passed on along a chain.

No retries below the queue's own. A call that fails in any way is a `Failure`; only cancellation
passes through.
"""

from __future__ import annotations

import asyncio
import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final

import msgspec

from everfill.compute.answers import answer_schema, instructions, read_answer
from everfill.compute.cuts import Cut, Policy, cut_inputs
from everfill.compute.models.connections import Model, find_models
from everfill.compute.models.exchange import Answer, Exchange, UnreachableError
from everfill.compute.models.failures import read_refusal, shorten
from everfill.compute.models.pacer import Pacer
from everfill.compute.models.prices import Prices
from everfill.compute.models.wire import Finish, MalformedError, Prompt, Quirk, Reply, Turn
from everfill.compute.options import choice_option, integer_option, number_option, text_option
from everfill.compute.protocol import (
    ComputeContext,
    ComputeRequest,
    ComputeResult,
    Failure,
    NotFound,
    Usage,
    Value,
)
from everfill.kernel.config import AiSettings
from everfill.kernel.errors import InvalidError
from everfill.tables.types import TypeName
from everfill.tables.values import JsonValue

__all__ = ["AiClient"]

_ANSWERS: Final = 2
"""The first, and one more that is told what was wrong with it."""
_WORDS_QUOTED: Final = 200
_PATIENCE_SECONDS: Final = 5.0
"""With a model that another one stands behind."""
_ANSWERED: Final = frozenset({"refused", "answer_truncated", "answer_invalid"})
"""Failures of a model that did answer: the next one of the chain is not asked for another."""


@dataclass(slots=True)
class _Spent:
    """What the calls of one cell spent so far."""

    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float = 0.0
    model: str | None = None

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

    _exchange: Exchange = field(default_factory=Exchange)
    _prices: Prices = field(default_factory=Prices)
    _quirks: defaultdict[tuple[str, str], set[Quirk]] = field(
        default_factory=lambda: defaultdict(set)
    )
    """What models turned out not to take, by base URL and name."""
    _pacer: Pacer | None = None
    _outages: dict[str, str] = field(default_factory=dict[str, str])
    """What each model failed with last."""

    async def answer(self, request: ComputeRequest, context: ComputeContext) -> ComputeResult:
        """Ask the models of the chain in turn until one of them answers."""
        settings = context.settings.ai
        if self._pacer is None:
            self._pacer = Pacer(context.board)
        try:
            models = find_models(settings, text_option(request.options, "model"), os.environ)
        except InvalidError as error:
            return Failure(code=error.code, message=error.message, transient=False)
        cut = _cut(request, settings)
        request = msgspec.structs.replace(request, text=cut.text)
        spent = _Spent()
        failures: list[tuple[Model, Failure]] = []
        for model in models:
            patience = settings.patience_seconds if model is models[-1] else None
            result = await self._converse(model, request, settings, spent, patience)
            if isinstance(result, Value) and cut.note:
                result = msgspec.structs.replace(result, note=cut.note)
            if not isinstance(result, Failure) or result.code in _ANSWERED:
                return _with_usage(result, spent)
            failures.append((model, result))
        return _with_usage(_join(failures), spent)

    async def aclose(self) -> None:
        """Close every connection."""
        await self._exchange.aclose()

    async def _converse(
        self,
        model: Model,
        request: ComputeRequest,
        settings: AiSettings,
        spent: _Spent,
        patience_seconds: float | None,
    ) -> ComputeResult:
        """Ask one model until its answer fits the column's type, at most twice."""
        prompt = _opening(model, request, settings)
        complaint = ""
        for _ in range(_ANSWERS):
            reply = await self._ask(model, prompt, settings.timeout_seconds, patience_seconds)
            if isinstance(reply, Failure):
                return reply
            self._count(model, reply, spent)
            if failure := _unfinished(reply):
                return failure
            try:
                return read_answer(reply.text, request.output_type, _own_schema(request))
            except InvalidError as error:
                complaint = f"{error.message} It was: {reply.text[:_WORDS_QUOTED]}"
                again = f"{error.message} Answer again, in the form that was asked for."
                turns = (*prompt.turns, Turn("assistant", reply.text), Turn("user", again))
                prompt = msgspec.structs.replace(prompt, turns=turns)
        message = shorten(f"No answer that fits the column, asked twice. {complaint}")
        return Failure(code="answer_invalid", message=message, transient=False)

    async def _ask(
        self, model: Model, prompt: Prompt, timeout_seconds: float, patience_seconds: float | None
    ) -> Reply | Failure:
        """One answer; the request is sent once more for each thing the model does not take.

        Patience is None where another model stands behind this one.
        """
        connection = model.connection
        quirks = self._quirks[connection.base_url, model.name]
        while True:
            tried = frozenset(quirks)
            body = connection.dialect.body(msgspec.structs.replace(prompt, quirks=tried))
            answer = await self._call_in_turn(model, body, timeout_seconds, patience_seconds)
            if isinstance(answer, Failure):
                return answer
            if answer.ok:
                return _read(model, answer)
            refusal = read_refusal(answer.status, answer.headers, answer.body)
            if refusal.quirk is None or refusal.quirk in tried:
                return refusal.explain(connection.secrets)
            quirks.add(refusal.quirk)

    async def _call_in_turn(
        self,
        model: Model,
        body: Mapping[str, JsonValue],
        timeout_seconds: float,
        patience_seconds: float | None,
    ) -> Answer | Failure:
        """Call when it is our turn, and again where that was one call too many, up to patience."""
        assert self._pacer, "answer makes it"
        pacer, key, rate_max = self._pacer, model.pace_key, model.connection.rate_max
        clock = asyncio.get_running_loop().time
        patience = _PATIENCE_SECONDS if patience_seconds is None else patience_seconds
        deadline = clock() + patience
        refused: Failure | None = None
        while turn := await pacer.turn(key, patience_seconds=deadline - clock(), rate_max=rate_max):
            answer = await self._call(model, body, timeout_seconds)
            if failure := _outage(model, answer):
                self._outages[key] = failure.message
                await pacer.failed(turn)
                return failure
            assert isinstance(answer, Answer), "a failure is an outage"
            refused = _slow_down(model, answer)
            if refused is None:
                await pacer.accepted(turn)
                return answer
            await pacer.rejected(turn, refused.retry_after_seconds)
            if patience_seconds is None:
                return refused
        if pacer.is_out(key):
            message = self._outages.get(key) or "The provider keeps failing."
            return Failure(
                code="provider_failed",
                message=f"{message} (not called again for a while)",
                transient=True,
                retry_after_seconds=pacer.wait_seconds(key),
            )
        message = f"The provider takes no more calls; no turn came within {patience:g} s."
        return refused or Failure(code="rate_limited", message=message, transient=True)

    async def _call(
        self, model: Model, body: Mapping[str, JsonValue], timeout_seconds: float
    ) -> Answer | Failure:
        """One exchange; a failure where there is no whole answer."""
        connection = model.connection
        try:
            async with asyncio.timeout(timeout_seconds):
                return await self._exchange.post(
                    connection, connection.dialect.path(model.name), body
                )
        except TimeoutError:
            message = f"No whole answer within {timeout_seconds:g} s."
            return Failure(code="timeout", message=message, transient=True)
        except UnreachableError as error:
            message = shorten(f"No connection to the provider: {error}", connection.secrets)
            return Failure(code="connection_failed", message=message, transient=True)

    def _count(self, model: Model, reply: Reply, spent: _Spent) -> None:
        spent.input_tokens += reply.tokens.input
        spent.output_tokens += reply.tokens.output
        spent.model = reply.model or model.name
        base_url = model.connection.base_url
        spent.cost_usd += self._prices.cost_usd(spent.model, base_url, reply.tokens)


def _opening(model: Model, request: ComputeRequest, settings: AiSettings) -> Prompt:
    options, output_type = request.options, request.output_type
    own, schema = text_option(options, "system"), _own_schema(request)
    tokens = integer_option(
        options, "max_output_tokens", low=1, high=2**31, default=settings.max_output_tokens
    )
    assert tokens is not None, "the settings have a default"
    return Prompt(
        model=model.name,
        system="\n\n".join(filter(None, (own, instructions(output_type, schema)))),
        turns=(Turn("user", request.text),),
        schema=answer_schema(output_type, schema),
        strict=output_type.name is not TypeName.JSON,
        temperature=number_option(options, "temperature", low=0, high=2),
        output_tokens_max=tokens,
    )


def _own_schema(request: ComputeRequest) -> Mapping[str, JsonValue] | None:
    """The author's schema; it was checked when the column was made."""
    schema = request.options.get("schema")
    return schema if isinstance(schema, dict) else None


def _cut(request: ComputeRequest, settings: AiSettings) -> Cut:
    options = request.options
    chars_max = integer_option(
        options, "input_chars_max", low=1, high=2**31, default=settings.input_chars_max
    )
    assert chars_max is not None, "the settings have a default"
    if len(request.text) <= chars_max:
        return Cut(request.text)
    policy = Policy(choice_option(options, "cut", [*Policy], Policy.HEAD))
    return cut_inputs(request.text, request.inputs, chars_max=chars_max, policy=policy)


def _read(model: Model, answer: Answer) -> Reply | Failure:
    """The reply; some endpoints say that all is well and send an error."""
    try:
        return model.connection.dialect.read(answer.body)
    except MalformedError as error:
        refusal = read_refusal(answer.status, {}, answer.body)
        words = error if refusal.words == "no message" else refusal.words
        message = shorten(f"The provider's answer is no reply: {words}", model.connection.secrets)
        return Failure(code="answer_malformed", message=message, transient=True)


def _outage(model: Model, answer: Answer | Failure) -> Failure | None:
    """The failure of a call that came to nothing."""
    if isinstance(answer, Failure):
        return answer
    if answer.status < HTTPStatus.INTERNAL_SERVER_ERROR:
        return None
    refusal = read_refusal(answer.status, answer.headers, answer.body)
    return refusal.explain(model.connection.secrets)


def _slow_down(model: Model, answer: Answer) -> Failure | None:
    """The failure of an answer that is a refusal of one call too many."""
    if answer.status != HTTPStatus.TOO_MANY_REQUESTS:
        return None
    refusal = read_refusal(answer.status, answer.headers, answer.body)
    failure = refusal.explain(model.connection.secrets)
    return failure if failure.code == "rate_limited" else None


def _unfinished(reply: Reply) -> Failure | None:
    """The failure of an answer that stopped early: cut off, or refused."""
    if reply.finish is Finish.LENGTH:
        message = "The answer was cut off; raise max_output_tokens or ask for less."
        return Failure(code="answer_truncated", message=message, transient=False)
    if reply.finish is Finish.REFUSED:
        message = shorten(f"The model refused: {reply.text or 'no reason'}")
        return Failure(code="refused", message=message, transient=False)
    return None


def _join(failures: Sequence[tuple[Model, Failure]]) -> Failure:
    """What a whole chain's failures come to: passing where one of them is."""
    if len(failures) == 1:
        return failures[0][1]
    passing = [failure for _, failure in failures if failure.transient]
    waits = [failure.retry_after_seconds for failure in passing]
    words = "; ".join(f"{model.label}: {failure.message}" for model, failure in failures)
    return Failure(
        code=(passing[0] if passing else failures[-1][1]).code,
        message=shorten(words),
        transient=bool(passing),
        retry_after_seconds=min((wait for wait in waits if wait is not None), default=None),
    )


def _with_usage(result: Value | NotFound | Failure, spent: _Spent) -> ComputeResult:
    if spent.model is None or not (spent.input_tokens or spent.output_tokens):
        return result
    return msgspec.structs.replace(result, usage=spent.usage())
