"""Room on the disk of the data directory, and what to tell when there is none.

A full disk has many faces: Postgres refuses to extend a table, or stops because it cannot write its
log and does not come up again; a worker cannot start, a state file cannot be written. Whatever it
was that failed, the disk is what a person can do something about.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

from everfill.kernel.errors import UnavailableError

__all__ = ["find_want_of_room"]

_BYTES_LEAST: Final = 16 * 1024**2
"""Postgres writes its log in pieces of this size, and stops where the next one finds no room."""


def find_want_of_room(data_dir: Path) -> UnavailableError | None:
    """What to tell where the disk of the data directory is full, or None where it is not."""
    try:
        free = shutil.disk_usage(data_dir).free
    except OSError:
        return None
    if free >= _BYTES_LEAST:
        return None
    return UnavailableError(
        "disk_full",
        f"The disk of the data directory {data_dir} is full: {free / 1e6:,.1f} MB are left.",
        hint="Free some space there and run the same command again: it resumes.",
    )
