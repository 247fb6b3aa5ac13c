"""Look at a stack from outside: what runs where, how large it is, what is wrong, what to do."""

from __future__ import annotations

import asyncio
import os
import platform
import sys
from pathlib import Path

from everfill.infra.stack import checks
from everfill.infra.stack.binaries import find_binary
from everfill.infra.stack.client import embedded_servers, stack_paths
from everfill.infra.stack.paths import StackPaths
from everfill.infra.stack.probes import (
    Answer,
    ask_postgres,
    ask_redis,
    ask_temporal,
    without_secret,
)
from everfill.infra.stack.report import (
    Finding,
    Placement,
    ServerReport,
    Severity,
    StackReport,
    Standing,
)
from everfill.infra.stack.state import (
    ServerName,
    ServerState,
    ServerStatus,
    StackState,
    find_live_state,
)
from everfill.kernel.config import Settings
from everfill.kernel.errors import UnavailableError

__all__ = ["inspect_stack"]


async def inspect_stack(settings: Settings) -> StackReport:
    """Look at every server and at what it stands on.

    It starts nothing, repairs nothing and creates nothing, works on a broken set-up, and returns
    within seconds: a server that does not answer is a finding.
    """
    paths, embedded = stack_paths(settings), embedded_servers(settings)
    state = find_live_state(paths)
    free = checks.free_bytes(paths.data_dir)
    findings = await asyncio.to_thread(_findings, paths, embedded, free) if embedded else []
    servers = await asyncio.gather(
        *(
            _embedded(name, settings, paths, state, findings)
            if name in embedded
            else _outside(name, settings)
            for name in ServerName
        )
    )
    return StackReport(
        data_dir=paths.data_dir,
        logs_dir=paths.logs_dir,
        disk_free_bytes=free,
        supervisor_pid=state.supervisor_pid if state else None,
        started_at=state.started_at if state else None,
        servers=tuple(servers),
        findings=tuple(findings),
    )


def _findings(
    paths: StackPaths, embedded: frozenset[ServerName], free: int | None
) -> list[Finding]:
    found = checks.check_platform(sys.platform, platform.machine())
    for name in sorted(embedded):
        found += checks.check_binary(name)
    found += checks.check_disk(free) if free is not None else []
    unusable = checks.check_data_dir(paths.data_dir)
    found += unusable
    if any(finding.severity is Severity.ERROR for finding in unusable):
        return found  # all the rest looks inside
    try:
        found += checks.check_state(paths)
        if ServerName.POSTGRES in embedded:
            found += checks.check_pgvector()
            found += checks.check_postgres_data(paths, _program_version(ServerName.POSTGRES) or "")
            found += checks.check_postgres_pid_file(paths)
        if ServerName.TEMPORAL in embedded:
            found += checks.check_temporal(paths)
    except PermissionError as error:
        problem = f"{error.filename} cannot be read by this user."
        fix = "Run as the user whose data directory it is, or choose another with --data-dir."
        found.append(
            Finding(code="data_dir_unusable", severity=Severity.ERROR, problem=problem, fix=fix)
        )
    return found


async def _embedded(
    name: ServerName,
    settings: Settings,
    paths: StackPaths,
    state: StackState | None,
    findings: list[Finding],
) -> ServerReport:
    size_bytes = await asyncio.to_thread(_size_bytes, _kept_in(name, paths))
    published = state.servers.get(name) if state else None
    barrier = next((found for found in findings if found.server is name), None)
    if published is None:
        return ServerReport(
            name=name,
            placement=Placement.EMBEDDED,
            state=Standing.BROKEN if barrier else Standing.STOPPED,
            pid=None,
            address=None,
            version=_program_version(name),
            size_bytes=size_bytes,
            problem=barrier.problem if barrier else None,
            fix=barrier.fix if barrier else None,
        )
    answer = await _ask_published(name, settings, published)
    return ServerReport(
        name=name,
        placement=Placement.EMBEDDED,
        state=Standing.BROKEN if answer.problem else Standing.RUNNING,
        pid=published.pid,
        address=published.address or None,
        version=answer.version or published.version or None,
        size_bytes=size_bytes,
        problem=answer.problem,
        fix=f"Its log is {paths.log(name.value)}." if answer.problem else None,
    )


async def _outside(name: ServerName, settings: Settings) -> ServerReport:
    address = _outside_address(name, settings)
    answer = await _ask(name, settings, address)
    key = {ServerName.TEMPORAL: "temporal.address"}.get(name, f"{name}.url")
    fix = f"Start that server, or correct {key} (see `everfill config show`)."
    return ServerReport(
        name=name,
        placement=Placement.OUTSIDE,
        state=Standing.BROKEN if answer.problem else Standing.RUNNING,
        pid=None,
        address=without_secret(address),
        version=answer.version,
        size_bytes=None,
        problem=answer.problem,
        fix=fix if answer.problem else None,
    )


async def _ask_published(name: ServerName, settings: Settings, server: ServerState) -> Answer:
    """Believe the supervisor about trouble, but not about health."""
    if server.status is ServerStatus.BROKEN:
        return Answer(problem=server.problem or "It cannot be started.")
    if server.status is ServerStatus.RESTARTING:
        return Answer(problem=server.problem or "It died and is being started again.")
    return await _ask(name, settings, server.address)


async def _ask(name: ServerName, settings: Settings, address: str) -> Answer:
    match name:
        case ServerName.POSTGRES:
            return await ask_postgres(address)
        case ServerName.REDIS:
            return await ask_redis(address)
        case ServerName.TEMPORAL:
            return await ask_temporal(settings.temporal, address)


def _outside_address(name: ServerName, settings: Settings) -> str:
    if name is ServerName.TEMPORAL:
        return settings.temporal.address or ""
    url = settings.postgres.url if name is ServerName.POSTGRES else settings.redis.url
    return url.get_secret_value() if url else ""


def _program_version(name: ServerName) -> str | None:
    try:
        return find_binary(name).version
    except UnavailableError:
        return None


def _kept_in(name: ServerName, paths: StackPaths) -> Path | None:
    """The directory of what the server keeps; Valkey keeps nothing."""
    places = {
        ServerName.POSTGRES: paths.postgres_dir,
        ServerName.TEMPORAL: paths.temporal_file.parent,
    }
    return places.get(name)


def _size_bytes(directory: Path | None) -> int:
    """What the files of a directory take on disk; what vanishes meanwhile counts as nothing."""
    if directory is None:
        return 0
    total = 0
    for parent, _, files in os.walk(directory):
        for name in files:
            try:
                total += (Path(parent) / name).lstat().st_blocks * 512
            except FileNotFoundError:
                continue
    return total
