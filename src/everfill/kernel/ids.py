"""Identities, each a type of its own so that they cannot be mixed up.

Everything the queue touches is an integer, because the queue's indexes are the hot part of the
system. Rows count from 1 within their collection; the others count across the installation.
"""

from __future__ import annotations

from typing import NamedTuple, NewType

__all__ = [
    "CellKey",
    "ClaimId",
    "CollectionId",
    "ColumnId",
    "LaneId",
    "NamespaceId",
    "RowId",
    "RunId",
]

NamespaceId = NewType("NamespaceId", int)
CollectionId = NewType("CollectionId", int)
ColumnId = NewType("ColumnId", int)
RowId = NewType("RowId", int)
"""Counts from 1 within one collection, in the order of import."""
LaneId = NewType("LaneId", int)
ClaimId = NewType("ClaimId", int)
RunId = NewType("RunId", int)


class CellKey(NamedTuple):
    """Where a cell is: one row and one column of a collection known from the context."""

    row_id: RowId
    column_id: ColumnId
