"""Redis as a transient bus: every call is best effort, bounded in time, and never raises.

It may be flushed, stopped or restarted at any moment. After a failure it is left alone for a
second, and then tried by one caller only, so that nobody who works for cells is ever held up by it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, TypeAlias, TypeVar, cast

import redis.asyncio as aioredis
import structlog
from redis.exceptions import RedisError, WatchError

from everfill.kernel.clock import Clock, SystemClock

__all__ = ["Redis", "open_redis"]

ANSWER_SECONDS: Final = 0.5
"""What a call may take: a local answer takes a thousandth, one across a region a tenth."""
PAUSE_SECONDS: Final = 1.0
"""How long Redis is left alone after it did not answer."""
_SOCKET_SECONDS: Final = 5.0  # the net under ANSWER_SECONDS, longer than any read may wait
_WAIT_SECONDS_MAX: Final = 2.0
_CHANGE_TRIES: Final = 20
_CHANGE_PAUSE_SECONDS: Final = 0.001  # a try longer each time, so that somebody comes first
_RANDOM: Final = random.SystemRandom()
_LOG: Final = structlog.stdlib.get_logger()
_T = TypeVar("_T")
_Streams: TypeAlias = "list[tuple[bytes, list[tuple[bytes, dict[bytes, bytes]]]]]"
_UNANSWERED: Final[Any] = object()


class Redis:
    """A client whose calls give a default where Redis does not answer.

    Each outage is logged once when it begins and once when it is over.
    """

    def __init__(self, client: aioredis.Redis, clock: Clock | None = None) -> None:
        self._client = client
        self._clock = clock or SystemClock()
        self._is_out = False
        self._asked_again_at = 0.0

    async def attempt(
        self,
        call: Callable[[aioredis.Redis], Awaitable[_T]],
        *,
        default: _T,
        seconds: float = ANSWER_SECONDS,
    ) -> _T:
        """The answer to a call, or the default where Redis does not answer in time."""
        if self._is_out:
            now = self._clock.monotonic_seconds()
            if now < self._asked_again_at:
                return default
            self._asked_again_at = now + seconds + PAUSE_SECONDS  # the others skip meanwhile
        try:
            async with asyncio.timeout(seconds):
                answer = await call(self._client)
        except (RedisError, OSError) as error:
            self._fell_out(error)
            return default
        self._came_back()
        return answer

    async def append(
        self, stream: str, fields: dict[Any, Any], *, length_max: int, keep_seconds: float
    ) -> None:
        """Add an entry to a stream, which keeps about `length_max` and goes when it is unused."""

        async def add(client: aioredis.Redis) -> None:
            async with client.pipeline(transaction=False) as pipeline:
                pipeline.xadd(stream, fields, maxlen=length_max, approximate=True)
                pipeline.pexpire(stream, int(keep_seconds * 1_000))
                await pipeline.execute()

        await self.attempt(add, default=None)

    async def read(
        self, stream: str, after: str, *, count_max: int, block_seconds: float
    ) -> list[tuple[str, dict[bytes, bytes]]]:
        """Entries of a stream after one, waiting for the first for at most `block_seconds`.

        Where there is no answer it waits all the same, so that who reads in a loop does not spin.
        """
        wait = min(block_seconds, _WAIT_SECONDS_MAX)
        found: _Streams | None = await self.attempt(
            lambda client: client.xread(
                {stream: after}, count=count_max, block=max(1, int(wait * 1_000))
            ),
            default=_UNANSWERED,
            seconds=wait + ANSWER_SECONDS,
        )
        if found is _UNANSWERED:
            await asyncio.sleep(wait)
            return []
        return [(key.decode(), fields) for _, entries in found or [] for key, fields in entries]

    async def forget(self, stream: str, through: str) -> None:
        """Drop the entries of a stream up to one, with it."""
        milliseconds, _, number = through.partition("-")
        first_kept = f"{milliseconds}-{int(number or 0) + 1}"
        await self.attempt(
            lambda client: client.xtrim(stream, minid=first_kept, approximate=False), default=0
        )

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

    async def change(
        self, key: str, change: Callable[[bytes | None, float], bytes], *, seconds: float
    ) -> tuple[bytes, float] | None:
        """Replace a kept value by what a function makes of it and of Redis' own time, all at once.

        Returns:
            The new value and that time; None where Redis does not answer, or others always came
            first.
        """

        async def replace(client: aioredis.Redis) -> tuple[bytes, float] | None:
            for tries in range(_CHANGE_TRIES):
                await asyncio.sleep(_RANDOM.uniform(0, tries * _CHANGE_PAUSE_SECONDS))
                async with client.pipeline(transaction=True) as pipeline:
                    await pipeline.watch(key)
                    whole, micro = await pipeline.time()  # pyright: ignore[reportUnknownMemberType] - the same
                    now = whole + micro / 1e6
                    value = change(cast("bytes | None", await pipeline.get(key)), now)
                    pipeline.multi()
                    pipeline.set(key, value, px=int(seconds * 1_000))
                    with suppress(WatchError):
                        await pipeline.execute()
                        return value, now
            return None

        return await self.attempt(replace, default=None)

    def _fell_out(self, error: Exception) -> None:
        if not self._is_out:
            _LOG.warning("redis.unavailable", error=str(error) or type(error).__name__)
        self._is_out = True
        self._asked_again_at = self._clock.monotonic_seconds() + PAUSE_SECONDS

    def _came_back(self) -> None:
        if self._is_out:
            _LOG.info("redis.available")
        self._is_out = False


@asynccontextmanager
async def open_redis(url: str) -> AsyncGenerator[Redis, None]:
    """A client that connects when it is first used."""
    client: aioredis.Redis = aioredis.Redis.from_url(  # pyright: ignore[reportUnknownMemberType] - its own types are loose
        url, socket_timeout=_SOCKET_SECONDS, socket_connect_timeout=_SOCKET_SECONDS, protocol=2
    )
    try:
        yield Redis(client)
    finally:
        await client.aclose()
