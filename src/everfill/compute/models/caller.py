"""One call to a model: in its turn, once more where it was one too many, and told to the others."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

from everfill.compute.models.connections import Model
from everfill.compute.models.exchange import (
    ClosedError,
    Exchange,
    TooLargeError,
    UnreachableError,
)
from everfill.compute.models.failures import Refusal, read_refusal, shorten
from everfill.compute.models.pacer import Pacer, Turn
from everfill.compute.protocol import Board, Failure
from everfill.kernel import limits
from everfill.tables.values import JsonValue

__all__ = ["Caller"]

_PATIENCE_SECONDS: Final = 5.0
"""With a model that another one stands behind."""
_OUTAGES: Final = frozenset({"timeout", "connection_failed"})


class Caller:
    """The calls of one event loop.

    Args:
        board: What processes share of the models' paces.
    """

    def __init__(self, board: Board | None) -> None:
        self._exchange = Exchange()
        self._pacer = Pacer(board)
        self._outages: dict[str, str] = {}
        """What each model failed with last."""

    async def call(
        self,
        model: Model,
        body: Mapping[str, JsonValue],
        *,
        timeout_seconds: float,
        patience_seconds: float | None,
    ) -> bytes | Refusal | Failure:
        """The body of a success, what the provider refused, or why there was no whole answer.

        Args:
            model: Whom to call.
            body: The request, in the model's dialect.
            timeout_seconds: Bound of one call.
            patience_seconds: How long to wait for a turn, and to call again where the provider asks
                to slow down; None: hardly, because another model stands behind this one.
        """
        patience = _PATIENCE_SECONDS if patience_seconds is None else patience_seconds
        clock, key = asyncio.get_running_loop().time, model.pace_key
        deadline = clock() + patience
        refused: Refusal | None = None
        while turn := await self._pacer.turn(
            key, patience_seconds=deadline - clock(), rate_max=model.connection.rate_max
        ):
            answer = await self._post(model, body, timeout_seconds)
            await self._tell(model, turn, answer)
            if not _is_too_fast(answer):
                return answer
            assert isinstance(answer, Refusal), "only a refusal asks to slow down"
            refused = answer
            if patience_seconds is None:
                break
        return refused or self._no_turn(model, patience)

    async def aclose(self) -> None:
        """Close every connection."""
        await self._exchange.aclose()

    async def _post(
        self, model: Model, body: Mapping[str, JsonValue], timeout_seconds: float
    ) -> bytes | Refusal | Failure:
        connection = model.connection
        try:
            async with asyncio.timeout(timeout_seconds):
                answer = await self._exchange.post(
                    connection, connection.dialect.path(model.name), body
                )
        except TimeoutError:
            message = f"No whole answer within {timeout_seconds:g} s."
            return Failure(code="timeout", message=message, transient=True)
        except UnreachableError as error:
            message = shorten(f"No connection to the provider: {error}", connection.secrets)
            return Failure(code="connection_failed", message=message, transient=True)
        except TooLargeError:
            message = f"The answer has more than {limits.MODEL_ANSWER_BYTES_MAX:,} bytes."
            return Failure(code="too_large", message=message, transient=False)
        except ClosedError:
            return Failure(code="worker_fault", message="The worker ends.", transient=True)
        if answer.ok:
            return answer.body
        return read_refusal(answer.status, answer.headers, answer.body)

    async def _tell(self, model: Model, turn: Turn, answer: bytes | Refusal | Failure) -> None:
        """Let the pace learn."""
        if outage := _outage(model, answer):
            self._outages[turn.key] = outage
            await self._pacer.failed(turn)
        elif isinstance(answer, Refusal) and _is_too_fast(answer):
            await self._pacer.rejected(turn, answer.retry_after_seconds)
        elif not isinstance(answer, Failure):  # else it is our own doing
            await self._pacer.accepted(turn)

    def _no_turn(self, model: Model, patience_seconds: float) -> Failure:
        key = model.pace_key
        if self._pacer.is_out(key):
            message = self._outages.get(key) or "The provider keeps failing."
            return Failure(
                code="provider_failed",
                message=f"{message} (not called again for a while)",
                transient=True,
                retry_after_seconds=self._pacer.wait_seconds(key),
            )
        message = f"The provider takes no more calls; no turn came within {patience_seconds:g} s."
        return Failure(code="rate_limited", message=message, transient=True)


def _is_too_fast(answer: bytes | Refusal | Failure) -> bool:
    """Whether it is a refusal of one call too many."""
    return isinstance(answer, Refusal) and answer.explain().code == "rate_limited"


def _outage(model: Model, answer: bytes | Refusal | Failure) -> str | None:
    """What to say of a call that came to nothing; None of one that was answered."""
    if isinstance(answer, Failure):
        return answer.message if answer.code in _OUTAGES else None
    if isinstance(answer, Refusal) and answer.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return answer.explain(model.connection.secrets).message
    return None
