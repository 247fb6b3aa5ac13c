"""Time, injected where a rule needs it, so that tests own it.

The database's clock decides everything that is stored; this one serves what happens in a process.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol

__all__ = ["Clock", "SystemClock"]


class Clock(Protocol):
    """What a component may ask of time."""

    def now(self) -> datetime:
        """The wall-clock time, aware, in UTC."""
        ...

    def monotonic_seconds(self) -> float:
        """Seconds that only ever grow; for measuring how long something took."""
        ...


class SystemClock:
    """The machine's own clock."""

    def now(self) -> datetime:
        """The wall-clock time, aware, in UTC."""
        return datetime.now(UTC)

    def monotonic_seconds(self) -> float:
        """Seconds that only ever grow."""
        return time.monotonic()
