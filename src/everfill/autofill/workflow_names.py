"""How workflows are called and what they are given, for those who start them without Temporal.

Every payload has a version and defaults, so that what an older process wrote can still be read.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from everfill.kernel.ids import CollectionId

__all__ = [
    "JANITOR_ID",
    "JANITOR_WORKFLOW",
    "SETUP_WORKFLOW",
    "WORK_SIGNAL",
    "JanitorStart",
    "ServedCollection",
    "SetupStart",
    "Ticked",
    "setup_id",
]

SETUP_WORKFLOW: Final = "setup"
JANITOR_WORKFLOW: Final = "janitor"
JANITOR_ID: Final = "janitor"
WORK_SIGNAL: Final = "work"


@dataclass(frozen=True, slots=True, kw_only=True)
class SetupStart:
    """What a setup workflow is started or continued with.

    Attributes:
        collection_id: Whom it serves.
        after: The last completion that was drained; `0`: none was.
        version: Of this payload.
    """

    collection_id: int
    after: str = "0"
    version: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedCollection:
    """What some seconds of serving a collection came to.

    Attributes:
        after: The last completion that was drained.
        idle: Whether nothing was unsettled at the end.
        version: Of this payload.
    """

    after: str
    idle: bool
    version: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class JanitorStart:
    """What the janitor is started or continued with.

    Attributes:
        report: Of the last tick, where it is continued.
        version: Of this payload.
    """

    report: dict[str, int | list[str]] = field(default_factory=dict[str, "int | list[str]"])
    version: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticked:
    """What one tick of the janitor healed, and when the next one is due.

    Attributes:
        report: A `JanitorReport`, by field.
        next_in_seconds: By the settings of the worker that ran it, so that a change of them holds
            from the next tick on.
        version: Of this payload.
    """

    report: dict[str, int | list[str]]
    next_in_seconds: float
    version: int = 1


def setup_id(collection_id: CollectionId) -> str:
    """The one workflow of an active collection."""
    return f"setup-{collection_id}"
