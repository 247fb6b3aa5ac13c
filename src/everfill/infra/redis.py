"""Redis as a transient bus: every call is best effort, bounded in time, and never raises.

It may be flushed, stopped or restarted at any moment. After a failure it is left alone for a
second, so that nobody who works for cells is ever held up by it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final, TypeAlias, TypeVar

import redis.asyncio as aioredis
import structlog
from redis.exceptions import RedisError

from everfill.kernel.clock import Clock, SystemClock

__all__ = ["Redis", "open_redis"]

_TIMEOUT_SECONDS: Final = 1.0
_PAUSE_SECONDS: Final = 1.0
_LOG: Final = structlog.stdlib.get_logger()
_T = TypeVar("_T")
_Streams: TypeAlias = "list[tuple[bytes, list[tuple[bytes, dict[bytes, bytes]]]]]"
_NOTHING: Final[Any] = None


class Redis:
    """A client whose calls give None where Redis does not answer."""

    def __init__(self, client: aioredis.Redis, clock: Clock | None = None) -> None:
        self._client = client
        self._clock = clock or SystemClock()
        self._paused_until = 0.0

    async def attempt(self, call: Callable[[aioredis.Redis], Awaitable[_T]], *, default: _T) -> _T:
        """The answer to a call, or the default where Redis does not answer."""
        if self._clock.monotonic_seconds() < self._paused_until:
            return default
        try:
            return await call(self._client)
        except (RedisError, OSError, TimeoutError) as error:
            if not self._paused_until:
                _LOG.warning("redis.unavailable", error=str(error))
            self._paused_until = self._clock.monotonic_seconds() + _PAUSE_SECONDS
            return default

    async def append(self, stream: str, fields: dict[Any, Any], *, length_max: int) -> None:
        """Add an entry to a stream, which keeps about `length_max`."""
        await self.attempt(
            lambda client: client.xadd(stream, fields, maxlen=length_max, approximate=True),
            default=b"",
        )

    async def read(
        self, stream: str, after: str, *, count_max: int, block_seconds: float
    ) -> list[tuple[str, dict[bytes, bytes]]]:
        """Entries of a stream after one, waiting for the first; none where there is no answer."""
        block = max(1, int(min(block_seconds, _TIMEOUT_SECONDS / 2) * 1_000))
        found: _Streams | None = await self.attempt(
            lambda client: client.xread({stream: after}, count=count_max, block=block),
            default=_NOTHING,
        )
        return [(key.decode(), fields) for _, entries in found or [] for key, fields in entries]

    async def take_turn(self, key: str, *, seconds: float) -> bool:
        """Whether nobody took this turn in the last `seconds`; yes where Redis does not answer."""
        taken: Any = await self.attempt(
            lambda client: client.set(key, b"1", nx=True, px=int(seconds * 1_000)), default=True
        )
        return bool(taken)

    async def put(self, key: str, value: bytes, *, seconds: float) -> None:
        """Keep a value for some time."""
        await self.attempt(
            lambda client: client.set(key, value, px=int(seconds * 1_000)), default=None
        )

    async def find(self, key: str) -> bytes | None:
        """A kept value, or None."""
        found: Any = await self.attempt(lambda client: client.get(key), default=None)
        return found


@asynccontextmanager
async def open_redis(url: str) -> AsyncGenerator[Redis, None]:
    """A client that connects when it is first used."""
    client: aioredis.Redis = aioredis.Redis.from_url(  # pyright: ignore[reportUnknownMemberType] - its own types are loose
        url, socket_timeout=_TIMEOUT_SECONDS, socket_connect_timeout=_TIMEOUT_SECONDS, protocol=2
    )
    try:
        yield Redis(client)
    finally:
        await client.aclose()
