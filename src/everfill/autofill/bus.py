"""What autofill says over Redis: completions to the setup workflow, frames to whoever watches.

Nothing that matters lives here. A lost completion is a frame less; Postgres has the truth.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final

import msgspec
import structlog

from everfill.autofill.queue import Spent
from everfill.infra.redis import Redis, open_redis
from everfill.kernel.ids import CollectionId, ColumnId

__all__ = ["Bus", "Completion", "Drained", "Frame"]

VERSION: Final = 1
COMPLETIONS_MAX: Final = 10_000
"""Entries a collection's stream keeps: minutes of a busy run, should nobody drain it."""
FRAMES_MAX: Final = 200
"""Frames kept for a watcher that reconnects."""
SHARED_SECONDS: Final = 300.0
"""Lease of the shared cache."""
KEEP_SECONDS: Final = 600.0
"""A stream that nobody adds to is gone after this, so that idle collections cost no memory."""
BOARD_SECONDS: Final = 3_600.0
"""What was learnt of a model that nobody calls is forgotten after this."""
_FIELD: Final = b"p"
_ENTRY_ID: Final = re.compile(r"\$|\d{1,19}(-\d{1,19})?")
_LOG: Final = structlog.stdlib.get_logger()


class Completion(msgspec.Struct, frozen=True, kw_only=True):
    """One finalized batch: cells by column and status, and what they cost."""

    version: int = VERSION
    counts: list[tuple[int, str, int]]
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float = 0.0


class Frame(msgspec.Struct, frozen=True, kw_only=True):
    """What a watcher is told: the sum of completions since the last frame."""

    version: int = VERSION
    collection_id: int
    counts: dict[str, int]
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float = 0.0


class Drained(msgspec.Struct, frozen=True, kw_only=True):
    """Completions read from a stream, summed, and where to go on."""

    after: str
    completions: int = 0
    counts: dict[str, int] = {}
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float = 0.0


class Bus:
    """The streams and the shared cache of one installation."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis

    @classmethod
    @asynccontextmanager
    async def open(cls, url: str) -> AsyncGenerator[Bus, None]:
        """A bus over the Redis at a URL; it need not answer."""
        async with open_redis(url) as redis:
            yield cls(redis)

    async def completed(
        self,
        collection_id: CollectionId,
        counts: Mapping[tuple[ColumnId, str], int],
        spent: Sequence[Spent],
    ) -> None:
        """Tell of a batch that came home; one entry, whatever its size."""
        completion = Completion(
            counts=[(column_id, status, n) for (column_id, status), n in counts.items()],
            input_tokens=sum(item.input_tokens for item in spent),
            output_tokens=sum(item.output_tokens for item in spent),
            cost_usd=sum(item.cost_usd for item in spent),
        )
        await self._redis.append(
            f"autofill:completions:{collection_id}",
            {_FIELD: msgspec.msgpack.encode(completion)},
            length_max=COMPLETIONS_MAX,
            keep_seconds=KEEP_SECONDS,
        )

    async def drain(
        self, collection_id: CollectionId, after: str, *, count_max: int, block_seconds: float
    ) -> Drained:
        """The sum of the completions after an entry; `0` is the beginning.

        They stay until `forget`, so that whoever dies in between has lost none.
        """
        entries = await self._redis.read(
            f"autofill:completions:{collection_id}",
            after,
            count_max=count_max,
            block_seconds=block_seconds,
        )
        completions = [found for _, fields in entries if (found := _completion(fields))]
        counts: dict[str, int] = {}
        for completion in completions:
            for _, status, n in completion.counts:
                counts[status] = counts.get(status, 0) + n
        return Drained(
            after=entries[-1][0] if entries else after,
            completions=len(completions),
            counts=counts,
            input_tokens=sum(completion.input_tokens for completion in completions),
            output_tokens=sum(completion.output_tokens for completion in completions),
            cost_usd=sum(completion.cost_usd for completion in completions),
        )

    async def forget(self, collection_id: CollectionId, through: str) -> None:
        """Drop the completions up to one: they have been told, and are not told again."""
        await self._redis.forget(f"autofill:completions:{collection_id}", through)

    async def emit(self, frame: Frame) -> None:
        """Tell watchers of a collection."""
        await self._redis.append(
            f"autofill:progress:{frame.collection_id}",
            {_FIELD: msgspec.json.encode(frame)},
            length_max=FRAMES_MAX,
            keep_seconds=KEEP_SECONDS,
        )

    async def frames(
        self, collection_id: CollectionId, after: str, *, block_seconds: float
    ) -> list[tuple[str, Frame]]:
        """Frames after one (`0`: all that are kept; `$`: none of those), waiting for the first.

        An id that no stream can have, such as one that a browser made up, counts as `0`.
        """
        entries = await self._redis.read(
            f"autofill:progress:{collection_id}",
            after if _ENTRY_ID.fullmatch(after) else "0",
            count_max=FRAMES_MAX,
            block_seconds=block_seconds,
        )
        return [(entry_id, frame) for entry_id, fields in entries if (frame := _frame(fields))]

    async def take_turn(self, collection_id: CollectionId, *, seconds: float) -> bool:
        """Whether no process announced this collection in the last `seconds`."""
        return await self._redis.take_turn(f"autofill:announced:{collection_id}", seconds=seconds)

    async def change(
        self, key: str, change: Callable[[bytes | None, float], bytes]
    ) -> tuple[bytes, float] | None:
        """The board of `ComputeContext`: what workers tell each other of the models they call."""
        return await self._redis.change(f"compute:{key}", change, seconds=BOARD_SECONDS)

    async def share(self, collection_id: CollectionId, content: bytes) -> None:
        """Renew the shared cache of a collection for its lease."""
        await self._redis.put(f"autofill:shared:{collection_id}", content, seconds=SHARED_SECONDS)

    async def find_shared(self, collection_id: CollectionId) -> bytes | None:
        """The shared cache of a collection, while its lease lasts."""
        return await self._redis.find(f"autofill:shared:{collection_id}")


def _completion(fields: Mapping[bytes, bytes]) -> Completion | None:
    """What an entry says; None where a newer Everfill, or somebody else, wrote it."""
    try:
        found = msgspec.msgpack.decode(fields.get(_FIELD, b""), type=Completion)
    except msgspec.DecodeError as error:
        _LOG.warning("bus.entry_skipped", error=str(error))
        return None
    return found if found.version == VERSION else None


def _frame(fields: Mapping[bytes, bytes]) -> Frame | None:
    """The same for a frame."""
    try:
        found = msgspec.json.decode(fields.get(_FIELD, b""), type=Frame)
    except msgspec.DecodeError as error:
        _LOG.warning("bus.entry_skipped", error=str(error))
        return None
    return found if found.version == VERSION else None
