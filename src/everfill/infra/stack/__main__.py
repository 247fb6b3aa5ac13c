"""The supervisor as a process of its own: `python -m everfill.infra.stack --data-dir DIR`.

Clients launch it; people rarely do. It leaves its parent at once, and tells it through a pipe how
the start went.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from pathlib import Path

import structlog

from everfill.infra.logs import log_to
from everfill.infra.stack.paths import StackPaths, trim_log
from everfill.infra.stack.supervisor import SupervisorOptions, supervise
from everfill.kernel.errors import EverfillError, UnavailableError

_log = structlog.get_logger(__name__)


def main() -> int:
    """Serve one data directory; the exit code is 1 where a server could not be started."""
    arguments = _parser().parse_args()
    if arguments.report_fd is not None:
        if os.fork():
            os._exit(0)
        os.set_inheritable(arguments.report_fd, False)  # noqa: FBT003  the call takes no keyword
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.JSONRenderer(),
        ],
        logger_factory=log_to(sys.stderr),
    )
    report = _Report(arguments.report_fd)
    paths = StackPaths(data_dir=arguments.data_dir)
    paths.create()
    trim_log(paths.log("supervisor"))
    options = SupervisorOptions(
        linger_seconds=arguments.linger_seconds, temporal_namespace=arguments.temporal_namespace
    )
    return _serve(paths, options, report)


def _serve(paths: StackPaths, options: SupervisorOptions, report: _Report) -> int:
    try:
        asyncio.run(supervise(paths, options, report.ready))
    except EverfillError as error:
        _log.error("stack_failed", code=error.code, problem=str(error))
        report.failed(error)
        return 1
    except OSError as error:  # a full disk, say: the client is told, rather than left to guess
        _log.exception("stack_failed")
        message = f"The supervisor of the embedded servers cannot go on: {error}"
        hint = f"See whether {paths.data_dir} is writable and its disk has room."
        report.failed(UnavailableError("supervisor_failed", message, hint=hint))
        return 1
    return 0


class _Report:
    """The pipe to the launching client: one line, then its end."""

    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor

    def ready(self) -> None:
        self._send({"ready": True})

    def failed(self, error: EverfillError) -> None:
        facts = {"code": error.code, "message": error.message, "hint": error.hint}
        self._send({"ready": False, **facts})

    def _send(self, line: dict[str, object]) -> None:
        if self._descriptor is None:
            return
        try:
            os.write(self._descriptor, json.dumps(line).encode())
        except BrokenPipeError:
            _log.info("launching_client_gone")
        finally:
            os.close(self._descriptor)
            self._descriptor = None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m everfill.infra.stack", description=__doc__)
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--linger-seconds", type=float, default=5.0)
    parser.add_argument("--temporal-namespace", default="default")
    parser.add_argument("--report-fd", type=int, help="A pipe for the outcome of the start.")
    return parser


if __name__ == "__main__":
    sys.exit(main())
