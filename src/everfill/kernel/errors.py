"""One root error, a few families, stable codes.

A family says how the world should react (an edge maps it to an HTTP status or an exit code once);
the code names the exact fault and never changes; the message says what happened and where; the hint
says what to do about it.
"""

from __future__ import annotations

__all__ = [
    "ConflictError",
    "EverfillError",
    "ForbiddenError",
    "InvalidError",
    "NotFoundError",
    "ProviderFailedError",
    "UnavailableError",
]


class EverfillError(Exception):
    """The root of every fault Everfill raises on purpose.

    Args:
        code: Stable snake_case name of the fault, for programs.
        message: What happened and where, for people.
        hint: What to do about it, or None where the message already says so.
    """

    retryable = False
    """Whether the same call may succeed later without a change by the caller."""

    def __init__(self, code: str, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} {self.hint}" if self.hint else self.message


class InvalidError(EverfillError):
    """The caller's input or definition is wrong; it will be wrong next time too."""


class NotFoundError(EverfillError):
    """What the caller names does not exist."""


class ConflictError(EverfillError):
    """The request contradicts the present state (a name taken, a column still in use)."""


class ForbiddenError(EverfillError):
    """A guard refuses the request (a private address, a limit of the installation)."""


class UnavailableError(EverfillError):
    """A server Everfill needs does not answer now; a later try may succeed."""

    retryable = True


class ProviderFailedError(EverfillError):
    """A model or a remote page failed to answer.

    Args:
        code: Stable snake_case name of the fault.
        message: The provider's own words, shortened.
        hint: What to do about it.
        retryable: Whether the provider may answer later (429, 5xx, a timeout).
        retry_after_seconds: How long the provider asks to be left alone, where it says so.
    """

    def __init__(
        self,
        code: str,
        message: str,
        *,
        hint: str | None = None,
        retryable: bool = False,
        retry_after_seconds: float | None = None,
    ) -> None:
        super().__init__(code, message, hint=hint)
        self.retryable = retryable
        self.retry_after_seconds = retry_after_seconds
