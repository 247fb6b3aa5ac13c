from __future__ import annotations

import io

import structlog

from everfill.infra.logs import log_to


class FullDisk(io.StringIO):
    def write(self, text: str) -> int:
        raise OSError(28, "No space left on device", text)


def test_what_a_full_disk_does_not_take_of_a_log_is_lost_and_nothing_fails() -> None:
    for level in ("debug", "info", "warning", "error", "critical", "exception"):
        getattr(log_to(FullDisk())(), level)("a line")


def test_a_line_is_logged_where_there_is_room() -> None:
    stream = io.StringIO()
    logger = structlog.wrap_logger(
        log_to(stream)(), processors=[structlog.processors.KeyValueRenderer()]
    )
    logger.info("worked", cells=3)
    assert stream.getvalue() == "cells=3 event='worked'\n"
