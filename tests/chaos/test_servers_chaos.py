"""Cells go on filling while Temporal is away and Redis comes and goes; afterwards all settles."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from fill_harness import COLUMNS, Fill, check, in_database, kill

from everfill.cli.exit_codes import ExitCode
from everfill.infra.stack.state import ServerName, StackState

PATIENCE_SECONDS = 150


def stop_temporal(state: StackState) -> Callable[[], None]:
    """Temporal answers no more, and looks alive; returns what lets it go on."""
    pid = state.servers[ServerName.TEMPORAL].pid
    assert pid
    os.kill(pid, signal.SIGSTOP)

    def go_on() -> None:
        assert psutil.Process(pid).status() == psutil.STATUS_STOPPED, "it was away to the end"
        os.kill(pid, signal.SIGCONT)

    return go_on


def kill_temporal(state: StackState) -> Callable[[], None]:
    """Temporal is gone, and who would start it again is held; returns what lets that go on."""
    pid = state.servers[ServerName.TEMPORAL].pid
    assert pid
    os.kill(state.supervisor_pid, signal.SIGSTOP)
    kill(pid)

    def go_on() -> None:
        gone = not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
        os.kill(state.supervisor_pid, signal.SIGCONT)
        assert gone, "it was away to the end"

    return go_on


def restart_redis(fill: Fill) -> bool:
    """Redis ends, as by an upgrade; its supervisor starts an empty one."""
    state = fill.state()
    pid = state.servers[ServerName.REDIS].pid if state else None
    if pid is None:
        return False
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
        return True
    return False


def until_computed(fill: Fill, cells: int) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while fill.computed() < cells:
        assert fill.process
        assert fill.process.poll() is None, fill.told()
        assert time.monotonic() < deadline, f"{fill.computed()} of {cells} cells were computed"
        time.sleep(0.02)


def run(
    fill: Fill,
    leave: Callable[[StackState], Callable[[], None]],
    *,
    redis_ends: int,
    away_seconds: float = 0.0,
) -> None:
    """Fill with Temporal away from early on to the end, and Redis ending now and then."""
    fill.start()
    until_computed(fill, 200)
    state = fill.state()
    assert state
    go_on, left_at = leave(state), time.monotonic()
    try:
        ended = 0
        for number in range(1, redis_ends + 1):
            until_computed(fill, fill.rows * number // (redis_ends + 1))
            ended += restart_redis(fill)
        assert fill.process
        code = fill.process.wait(PATIENCE_SECONDS)
        while code == ExitCode.DONE and time.monotonic() < left_at + away_seconds:
            fill.start()  # the servers stay as long as somebody wants them
            code = fill.process.wait(PATIENCE_SECONDS)
    finally:
        go_on()
    assert code == ExitCode.DONE, fill.told()
    assert ended > 0 or redis_ends == 0
    check(fill, faults=0)
    assert asyncio.run(in_database(fill)) == [(0, 0, COLUMNS * fill.rows)]


@pytest.mark.chaos
def test_a_fill_ends_while_temporal_is_silent_and_redis_restarts(tmp_path: Path) -> None:
    run(Fill(tmp_path, rows=2_000), stop_temporal, redis_ends=3)


@pytest.mark.chaos
@pytest.mark.slow
@pytest.mark.parametrize(
    ("leave", "redis_ends"), [(stop_temporal, 20), (kill_temporal, 1)], ids=["silent", "killed"]
)
def test_a_large_fill_ends_while_temporal_is_away(
    tmp_path: Path, leave: Callable[[StackState], Callable[[], None]], redis_ends: int
) -> None:
    fill = Fill(tmp_path, rows=60_000)
    run(fill, leave, redis_ends=redis_ends, away_seconds=180)
    fill.start()  # the same command again, with Temporal back
    assert fill.process
    assert fill.process.wait(PATIENCE_SECONDS) == ExitCode.DONE, fill.told()
    check(fill, faults=0)
