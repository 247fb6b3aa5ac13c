"""One thing for each event loop: clients and processes cannot be shared between loops."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

__all__ = ["PerLoop"]

T = TypeVar("T")


class PerLoop(Generic[T]):
    """A lazily made thing of the running event loop.

    Guarantees that `get` makes at most one for a loop until `take` removes it; what belongs to a
    loop that is gone is forgotten with it.
    """

    def __init__(self, factory: Callable[[], T]) -> None:
        self._factory = factory
        self._things: WeakKeyDictionary[asyncio.AbstractEventLoop, T] = WeakKeyDictionary()

    def get(self) -> T:
        """The running loop's thing, made now if it has none."""
        loop = asyncio.get_running_loop()
        if (thing := self._things.get(loop)) is None:
            thing = self._things[loop] = self._factory()
        return thing

    def take(self) -> T | None:
        """Remove and return the running loop's thing, for the caller to close."""
        return self._things.pop(asyncio.get_running_loop(), None)
