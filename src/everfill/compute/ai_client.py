"""Answers of models to a column's prompts: asked, read, repaired once, and passed on along a chain.

A call that fails in any way is a `Failure`; only cancellation
passes through.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final

import msgspec

from everfill.compute.answers import answer_schema, instructions, read_answer
from everfill.compute.cuts import Cut, Policy, cut_inputs
from everfill.compute.models.caller import Caller
from everfill.compute.models.connections import Model, find_models
from everfill.compute.models.failures import read_refusal, shorten
from everfill.compute.models.prices import Prices
from everfill.compute.models.wire import Finish, MalformedError, Message, Prompt, Quirk, Reply
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

    _prices: Prices = field(default_factory=Prices)
    _quirks: defaultdict[tuple[str, str], set[Quirk]] = field(
        default_factory=lambda: defaultdict(set)
    )
    """What models turned out not to take, by base URL and name."""
    _caller: Caller | None = None

    async def answer(self, request: ComputeRequest, context: ComputeContext) -> ComputeResult:
        """Ask the models of the chain in turn until one of them answers."""
        settings = context.settings.ai
        if self._caller is None:
            self._caller = Caller(context.board)
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
        if self._caller:
            await self._caller.aclose()

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
                said = (Message("assistant", reply.text), Message("user", again))
                prompt = msgspec.structs.replace(prompt, messages=(*prompt.messages, *said))
        message = shorten(f"No answer that fits the column, asked twice. {complaint}")
        return Failure(code="answer_invalid", message=message, transient=False)

    async def _ask(
        self, model: Model, prompt: Prompt, timeout_seconds: float, patience_seconds: float | None
    ) -> Reply | Failure:
        """One answer; the request is sent once more for each thing the model does not take."""
        assert self._caller, "answer makes it"
        connection = model.connection
        quirks = self._quirks[connection.base_url, model.name]
        while True:
            tried = frozenset(quirks)
            answer = await self._caller.call(
                model,
                connection.dialect.body(msgspec.structs.replace(prompt, quirks=tried)),
                timeout_seconds=timeout_seconds,
                patience_seconds=patience_seconds,
            )
            if isinstance(answer, Failure):
                return answer
            if isinstance(answer, bytes):
                return _read(model, answer)
            if answer.quirk is None or answer.quirk in tried:
                return answer.explain(connection.secrets)
            quirks.add(answer.quirk)

    def _count(self, model: Model, reply: Reply, spent: _Spent) -> None:
        spent.input_tokens += reply.tokens.input
        spent.output_tokens += reply.tokens.output
        spent.model = reply.model or model.name
        if not model.connection.free:
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
        messages=(Message("user", request.text),),
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


def _read(model: Model, body: bytes) -> Reply | Failure:
    """The reply; some endpoints say that all is well and send an error."""
    try:
        return model.connection.dialect.read(body)
    except MalformedError as error:
        refusal = read_refusal(HTTPStatus.OK, {}, body)
        words = error if refusal.words == "no message" else refusal.words
        message = shorten(f"The provider's answer is no reply: {words}", model.connection.secrets)
        return Failure(code="answer_malformed", message=message, transient=True)


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
