"""Documents read in processes of their own, so that a bad one can only hurt its reader.

A process serves one file at a time within limits of memory and time and lives on between files.
One that overruns, crashes or is given up in the middle of a file is killed, and the next file gets
a new one. A file whose reader dies is tried once more with a fresh reader, in case the reader was
to blame; then the file is.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from everfill.compute.extract_result import REPLY, REQUEST, Extract
from everfill.compute.per_loop import PerLoop
from everfill.compute.protocol import Failure
from everfill.kernel import limits

__all__ = ["ExtractPool", "shared_pool", "take_shared_pool"]

_READERS_MAX: Final = 4
_TRIES: Final = 2


@dataclass(slots=True)
class ExtractPool:
    """Reader processes of one event loop, started as they are needed.

    Args:
        seconds: Wall-clock time of one file.
        memory_bytes: Address space of one reader.
    """

    seconds: float = limits.EXTRACT_SECONDS
    memory_bytes: int = limits.EXTRACT_MEMORY_BYTES
    _closed: bool = False
    _idle: list[Process] = field(default_factory=list[Process])
    _slots: asyncio.Semaphore = field(
        default_factory=lambda: asyncio.Semaphore(min(os.cpu_count() or 1, _READERS_MAX))
    )

    async def extract(
        self,
        data: bytes,
        *,
        name: str = "",
        mime: str = "",
        charset: str | None = None,
        seconds: float | None = None,
    ) -> Extract | Failure:
        """Read a file, in less time than the pool gives where `seconds` says so.

        Every fault of the file is a failure for good.
        """
        if len(data) > limits.EXTRACT_BYTES_MAX:
            most = limits.EXTRACT_BYTES_MAX
            return _failure("too_large", f"{len(data):,} bytes; the most is {most:,}.")
        meta = json.dumps({"name": name, "mime": mime, "charset": charset or ""}).encode()
        async with self._slots:
            return await self._extract(
                REQUEST.pack(len(meta), len(data)) + meta,
                data,
                min(seconds or self.seconds, self.seconds),
            )

    async def aclose(self) -> None:
        """End every reader, those at work once they are done with their file."""
        self._closed = True
        idle, self._idle = self._idle, []
        for reader in idle:
            await _end(reader)

    async def _extract(self, head: bytes, data: bytes, seconds: float) -> Extract | Failure:
        for _ in range(_TRIES):
            reader = self._idle.pop() if self._idle else await self._start()
            try:
                async with asyncio.timeout(seconds):
                    reply = await _exchange(reader, head, data)
            except TimeoutError:
                await _end(reader)
                return _failure("timeout", f"Reading it took more than {seconds:g} s.")
            except (ConnectionError, asyncio.IncompleteReadError):
                await _end(reader)  # it died; the next try gets another
                continue
            except BaseException:
                await _end(reader)
                raise
            await self._give_back(reader, reply)
            return _result(reply)
        return _failure("file_broken", "The file crashes its reader.")

    async def _give_back(self, reader: Process, reply: dict[str, str | None]) -> None:
        """Keep the reader for the next file, unless this one used up its memory."""
        if self._closed or reply.get("code") == "too_large":
            await _end(reader)
        else:
            self._idle.append(reader)

    async def _start(self) -> Process:
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "everfill.compute.extract_worker",
            str(self.memory_bytes),
            stdin=PIPE,
            stdout=PIPE,
            stderr=DEVNULL,
            start_new_session=True,
        )


_shared: Final = PerLoop(ExtractPool)


def shared_pool() -> ExtractPool:
    """The running loop's pool, which every kind that reads documents uses."""
    return _shared.get()


def take_shared_pool() -> ExtractPool | None:
    """Remove the running loop's pool, for the caller to close; a later use makes a new one."""
    return _shared.take()


async def _exchange(reader: Process, head: bytes, data: bytes) -> dict[str, str | None]:
    assert reader.stdin is not None
    assert reader.stdout is not None
    reader.stdin.write(head)
    reader.stdin.write(data)
    await reader.stdin.drain()
    (size,) = REPLY.unpack(await reader.stdout.readexactly(REPLY.size))
    return json.loads(await reader.stdout.readexactly(size))


def _result(reply: dict[str, str | None]) -> Extract | Failure:
    if code := reply.get("code"):
        return _failure(code, reply.get("message") or "")
    return Extract(text=reply["text"] or "", format=reply["format"] or "", title=reply["title"])


def _failure(code: str, message: str) -> Failure:
    return Failure(code=code, message=message[: limits.ERROR_MESSAGE_CHARS_MAX], transient=False)


async def _end(reader: Process) -> None:
    with suppress(ProcessLookupError):
        reader.kill()
    if reader.stdin is not None:
        reader.stdin.close()
    await reader.wait()
