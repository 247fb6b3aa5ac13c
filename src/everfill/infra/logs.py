"""Where logs go: to a stream that may fail, as on a full disk, and whose failure fails nothing."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TextIO

import structlog

__all__ = ["log_to"]


def log_to(stream: TextIO) -> Callable[..., structlog.PrintLogger]:
    """A logger factory for structlog: a line that the stream does not take is lost."""
    return lambda *_: _Logger(stream)


class _Logger(structlog.PrintLogger):
    def msg(self, message: str) -> None:
        with suppress(OSError):
            super().msg(message)

    log = debug = info = warn = warning = msg
    fatal = failure = err = error = critical = exception = msg
