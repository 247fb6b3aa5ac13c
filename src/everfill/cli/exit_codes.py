"""What the command line ends with: one code for each family of faults."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from everfill.kernel.errors import (
    ConflictError,
    EverfillError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    ProviderFailedError,
    UnavailableError,
)

__all__ = ["ExitCode", "exit_code_of"]


class ExitCode(IntEnum):
    """Documented in docs/reference/exit-codes.md."""

    DONE = 0
    """Done; for `fill`, every cell settled without a failure."""
    FAULT = 1
    """A fault of Everfill itself."""
    INVALID = 2
    """What was typed, or a file, is wrong."""
    CELLS_FAILED = 3
    """Done, and some cells failed."""
    NOT_FOUND = 4
    """What was named does not exist."""
    CONFLICT = 5
    """What was asked contradicts what is there."""
    FORBIDDEN = 6
    """A guard refuses it."""
    UNAVAILABLE = 7
    """A server does not start or does not answer."""
    PROVIDER_FAILED = 8
    """A model or a page failed."""
    INTERRUPTED = 130
    """Stopped by Ctrl-C; the same command resumes."""


_FAMILIES: Final[tuple[tuple[type[EverfillError], ExitCode], ...]] = (
    (InvalidError, ExitCode.INVALID),
    (NotFoundError, ExitCode.NOT_FOUND),
    (ConflictError, ExitCode.CONFLICT),
    (ForbiddenError, ExitCode.FORBIDDEN),
    (UnavailableError, ExitCode.UNAVAILABLE),
    (ProviderFailedError, ExitCode.PROVIDER_FAILED),
)


def exit_code_of(error: EverfillError) -> ExitCode:
    """The exit code of an error's family."""
    for family, code in _FAMILIES:
        if isinstance(error, family):
            return code
    return ExitCode.FAULT
