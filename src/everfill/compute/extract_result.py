"""What passes between Everfill and a reader process: frames, extracts, and what cannot be read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from struct import Struct
from typing import Final

from everfill.kernel import limits

__all__ = ["REPLY", "REQUEST", "Extract", "UnreadableError", "bounded"]

REQUEST: Final = Struct(">IQ")
"""Head of a request: bytes of JSON (`name`, `mime`, `charset`), then bytes of file, follow."""
REPLY: Final = Struct(">Q")
"""Head of a reply: bytes of JSON that follow, an `Extract` or `code` and `message`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Extract:
    """A document's text (blank where it has none), its title if it names one, and its format."""

    text: str
    format: str
    title: str | None = None


class UnreadableError(Exception):
    """The file cannot be read; `code` is the failure's."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def bounded(texts: Iterable[str]) -> Iterator[str]:
    """The same texts; stops a document whose text grows beyond bounds while it is read."""
    total = 0
    for text in texts:
        total += len(text)
        if total > limits.EXTRACT_CHARS_MAX:
            message = f"Its text has more than {limits.EXTRACT_CHARS_MAX:,} characters."
            raise UnreadableError("too_large", message)
        yield text
