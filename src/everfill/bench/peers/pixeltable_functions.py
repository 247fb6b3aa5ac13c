# Pixeltable is installed for the Python that runs this file and for no other.
# pyright: reportMissingImports=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUntypedFunctionDecorator=false
# pyright: reportUnknownParameterType=false, reportUnknownArgumentType=false
"""The functions that Pixeltable fills columns with: a row at a time, a batch at a time, a call.

They live in a module of their own because Pixeltable stores a computed column's function by its
import path; one that is defined in `__main__` could not be found again by the next process.
"""

from __future__ import annotations

import aiohttp
import pixeltable as pxt
from pixeltable.func import Batch

BATCH_ROWS = 64  # what Pixeltable's row loop hands on at a time; larger ones measured no faster
CALL_SECONDS_MAX = 60.0


class Calls:
    """The one HTTP session of the process, and how many calls wait in it."""

    session: aiohttp.ClientSession | None = None
    waiting = 0
    waiting_peak = 0

    @classmethod
    def opened(cls, connections: int) -> aiohttp.ClientSession:
        """The session, opened at the first call, since it belongs to Pixeltable's event loop."""
        if cls.session is None:
            connector = aiohttp.TCPConnector(limit=connections)
            # Pixeltable starts up to 2,048 calls at once, so most wait for a connection: only the
            # answer itself is timed, or the last of a long queue would fail.
            timeout = aiohttp.ClientTimeout(total=None, sock_read=CALL_SECONDS_MAX)
            cls.session = aiohttp.ClientSession(connector=connector, timeout=timeout)
        return cls.session


@pxt.udf
def one_of(word: str) -> str:
    """The first column, a row at a time."""
    return "1 " + word


@pxt.udf
def two_of(one: str) -> str:
    """The second column, a row at a time."""
    return "2 " + one


@pxt.udf(batch_size=BATCH_ROWS)
def one_of_batch(word: Batch[str]) -> Batch[str]:
    """The first column, a batch at a time."""
    return ["1 " + item for item in word]


@pxt.udf(batch_size=BATCH_ROWS)
def two_of_batch(one: Batch[str]) -> Batch[str]:
    """The second column, a batch at a time."""
    return ["2 " + item for item in one]


@pxt.udf
async def answer_of(word: str, url: str, connections: int) -> str:
    """What the provider answers; Pixeltable starts one task for each call."""
    Calls.waiting += 1
    Calls.waiting_peak = max(Calls.waiting_peak, Calls.waiting)
    try:
        async with Calls.opened(connections).post(url, json={"input": word}) as response:
            response.raise_for_status()
            body = await response.json()
    finally:
        Calls.waiting -= 1
    return str(body["output"])
