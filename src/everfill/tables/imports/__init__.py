"""Readers: a file, a folder or a list of URLs becomes typed rows, streamed in constant memory.

Nothing here knows the database, and nothing is lost in silence: what a reader renamed, guessed or
could not read stands in the source's notes and bad rows.
"""

from __future__ import annotations

from everfill.tables.imports.opening import SUPPORTED_SUFFIXES, file_missing, open_source
from everfill.tables.imports.source import (
    BadRow,
    FileSink,
    OnBadRow,
    Source,
    SourceColumn,
    SourceRow,
)

__all__ = [
    "SUPPORTED_SUFFIXES",
    "BadRow",
    "FileSink",
    "OnBadRow",
    "Source",
    "SourceColumn",
    "SourceRow",
    "file_missing",
    "open_source",
]
