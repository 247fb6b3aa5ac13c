"""What a supervisor publishes about its stack, in `run/stack.json`."""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path
from typing import Final

import msgspec
import psutil

from everfill.infra.stack.locks import is_held
from everfill.infra.stack.paths import StackPaths

__all__ = [
    "STATE_VERSION",
    "ServerName",
    "ServerState",
    "ServerStatus",
    "StackState",
    "broken_state",
    "find_live_state",
    "parse_state",
    "write_atomically",
    "write_state",
]

STATE_VERSION: Final = 1


class ServerName(StrEnum):
    """The three servers of a stack, by their sections in the settings."""

    POSTGRES = "postgres"
    TEMPORAL = "temporal"
    REDIS = "redis"


class ServerStatus(StrEnum):
    """What a supervised server is doing."""

    RUNNING = "running"
    RESTARTING = "restarting"
    BROKEN = "broken"


class ServerState(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One supervised server.

    `address` is what a client connects to; it outlives restarts wherever the system allows it.
    """

    status: ServerStatus
    address: str
    version: str
    pid: int | None
    restarts: int
    problem: str | None


class StackState(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole stack; times are ISO 8601 in UTC."""

    version: int
    supervisor_pid: int
    started_at: str
    servers: dict[ServerName, ServerState]


def broken_state(problem: str) -> ServerState:
    """What to publish of a server that could not be started at all."""
    return ServerState(
        status=ServerStatus.BROKEN, address="", version="", pid=None, restarts=0, problem=problem
    )


def parse_state(content: bytes) -> StackState | None:
    """The published state, or None where it cannot be read (torn, foreign, another version)."""
    try:
        state = msgspec.json.decode(content, type=StackState)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return state if state.version == STATE_VERSION else None


def find_live_state(paths: StackPaths) -> StackState | None:
    """The state of the supervisor that runs now, or None where none runs or it is not ready.

    The lock alone would believe what a killed supervisor left, for the moment in which its
    successor has the lock and has not yet removed that; hence the look at the pid.
    """
    try:
        state = parse_state(paths.state_file.read_bytes())
    except OSError:
        return None
    if state is None or not is_held(paths.supervisor_lock):
        return None
    return state if psutil.pid_exists(state.supervisor_pid) else None


def write_state(paths: StackPaths, state: StackState) -> None:
    """Publish the state: readers see the former one or this one, whole."""
    content = msgspec.json.format(msgspec.json.encode(state), indent=2)
    write_atomically(paths.state_file, content)


def write_atomically(path: Path, content: bytes) -> None:
    """Replace a file of the run directory in one step."""
    draft = path.with_name(f"{path.name}.{os.getpid()}.draft")
    draft.write_bytes(content)
    draft.chmod(0o600)
    draft.replace(path)
