"""What the local functions share: a batch of texts goes to a thread, blank ones have no answer."""

from __future__ import annotations

import asyncio
import os
from abc import abstractmethod
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache

from everfill.compute.protocol import (
    ComputeContext,
    ComputeKind,
    ComputeRequest,
    ComputeResult,
    NotFound,
)

__all__ = ["LocalKind"]

NO_TEXT = NotFound(reason="no text")


class LocalKind(ComputeKind):
    """A kind that turns a text into a value on this machine's processors, without a network."""

    @abstractmethod
    def fill(self, requests: Sequence[ComputeRequest]) -> Sequence[ComputeResult]:
        """Compute requests whose texts are not blank, in order; runs in a thread."""
        ...

    async def compute(
        self,
        requests: Sequence[ComputeRequest],
        context: ComputeContext,  # noqa: ARG002 - the protocol gives it
    ) -> Sequence[ComputeResult]:
        """Compute the batch in a thread, off the event loop."""
        asked = [request for request in requests if request.text.strip()]
        if not asked:
            return [NO_TEXT] * len(requests)
        loop = asyncio.get_running_loop()
        filled = iter(await loop.run_in_executor(_threads(), self.fill, asked))
        return [next(filled) if request.text.strip() else NO_TEXT for request in requests]


@cache
def _threads() -> ThreadPoolExecutor:
    """As many as cores: more would only take turns."""
    return ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="everfill-local")
