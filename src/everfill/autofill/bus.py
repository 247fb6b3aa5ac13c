"""What autofill says over Redis: completions to the setup workflow, frames to whoever watches.

Nothing that matters lives here. A lost completion is a frame less; Postgres has the truth.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final

import msgspec

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
_FIELD: Final = b"p"


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
        )

    async def drain(
        self, collection_id: CollectionId, after: str, *, count_max: int, block_seconds: float
    ) -> Drained:
        """The sum of the completions after an entry; `0` is the beginning."""
        entries = await self._redis.read(
            f"autofill:completions:{collection_id}",
            after,
            count_max=count_max,
            block_seconds=block_seconds,
        )
        counts: dict[str, int] = {}
        tokens_in = tokens_out = 0
        cost_usd = 0.0
        for _, fields in entries:
            completion = msgspec.msgpack.decode(fields[_FIELD], type=Completion)
            for _, status, n in completion.counts:
                counts[status] = counts.get(status, 0) + n
            tokens_in += completion.input_tokens
            tokens_out += completion.output_tokens
            cost_usd += completion.cost_usd
        return Drained(
            after=entries[-1][0] if entries else after,
            completions=len(entries),
            counts=counts,
            input_tokens=tokens_in,
            output_tokens=tokens_out,
            cost_usd=cost_usd,
        )

    async def emit(self, frame: Frame) -> None:
        """Tell watchers of a collection."""
        await self._redis.append(
            f"autofill:progress:{frame.collection_id}",
            {_FIELD: msgspec.json.encode(frame)},
            length_max=FRAMES_MAX,
        )

    async def frames(
        self, collection_id: CollectionId, after: str, *, block_seconds: float
    ) -> list[tuple[str, Frame]]:
        """Frames after one, waiting for the first."""
        entries = await self._redis.read(
            f"autofill:progress:{collection_id}",
            after,
            count_max=FRAMES_MAX,
            block_seconds=block_seconds,
        )
        return [
            (entry_id, msgspec.json.decode(fields[_FIELD], type=Frame))
            for entry_id, fields in entries
        ]

    async def take_turn(self, collection_id: CollectionId, *, seconds: float) -> bool:
        """Whether no process announced this collection in the last `seconds`."""
        return await self._redis.take_turn(f"autofill:announced:{collection_id}", seconds=seconds)

    async def share(self, collection_id: CollectionId, content: bytes) -> None:
        """Renew the shared cache of a collection for its lease."""
        await self._redis.put(f"autofill:shared:{collection_id}", content, seconds=SHARED_SECONDS)

    async def find_shared(self, collection_id: CollectionId) -> bytes | None:
        """The shared cache of a collection, while its lease lasts."""
        return await self._redis.find(f"autofill:shared:{collection_id}")
