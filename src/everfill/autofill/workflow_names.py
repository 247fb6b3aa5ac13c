"""How workflows are called, for those who start them without importing them."""

from __future__ import annotations

from typing import Final

from everfill.kernel.ids import CollectionId

__all__ = ["JANITOR_ID", "JANITOR_WORKFLOW", "SETUP_WORKFLOW", "WORK_SIGNAL", "setup_id"]

SETUP_WORKFLOW: Final = "setup"
JANITOR_WORKFLOW: Final = "janitor"
JANITOR_ID: Final = "janitor"
WORK_SIGNAL: Final = "work"


def setup_id(collection_id: CollectionId) -> str:
    """The one workflow of an active collection."""
    return f"setup-{collection_id}"
