"""Locks on files that the kernel itself gives back when their holder dies, however it dies."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

__all__ = ["FileLock", "is_held"]


class FileLock:
    """One `flock`, held by an open descriptor that no started program inherits.

    Args:
        path: The file; created empty where it is missing, never written, never removed.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def try_shared(self) -> bool:
        """Take it together with others; False where someone has it alone."""
        return self._try(fcntl.LOCK_SH)

    def try_exclusive(self) -> bool:
        """Take it alone; False where anybody has it."""
        return self._try(fcntl.LOCK_EX)

    def unlock(self) -> None:
        """Give it back; it can be taken again."""
        fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def close(self) -> None:
        """Give it back for good."""
        os.close(self._descriptor)

    def is_current(self) -> bool:
        """Whether the path still names the file that is locked."""
        try:
            found = self._path.stat()
        except OSError:
            return False
        held = os.fstat(self._descriptor)
        return (found.st_ino, found.st_dev) == (held.st_ino, held.st_dev)

    def _try(self, kind: int) -> bool:
        try:
            fcntl.flock(self._descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def is_held(path: Path) -> bool:
    """Whether someone holds the lock alone; a reader can ask, and nothing is created."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
