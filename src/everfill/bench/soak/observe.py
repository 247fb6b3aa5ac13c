"""One look at everything that must not grow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final, TypeAlias

import psutil
from temporalio.client import Client

from everfill.app import App
from everfill.bench.fill.usage import own_bytes, resident_bytes
from everfill.infra.postgres import load_queries
from everfill.infra.redis import Redis
from everfill.infra.stack.client import stack_paths
from everfill.infra.stack.state import find_live_state
from everfill.kernel.errors import UnavailableError

__all__ = ["Observer"]

_QUERIES: Final = load_queries("everfill.bench.soak", "soak.sql")
_MIB: Final = 2**20
_QUEUE_TABLES: Final = ("queue", "lanes", "lane_tails", "lane_clocks", "claims")
_HISTORY_TABLES: Final = ("changes", "runs", "usage", "usage_totals")
"""What people did and what was spent: they grow with every edit, because they are to be kept."""
_SERVERS: Final = {"valkey-server": "redis"}

_Group: TypeAlias = "tuple[str, list[psutil.Process]]"


class Observer:
    """Looks at the processes of one `everfill up`, at the tables and at the servers.

    Args:
        app: Whose installation.
        up: The command's process.
        temporal: A client of its Temporal.
        redis: A client of its Redis.
    """

    def __init__(self, app: App, up: psutil.Process, temporal: Client, redis: Redis) -> None:
        self._app = app
        self._up = up
        self._temporal = temporal
        self._redis = redis
        self._known: set[int] = set()

    async def look(self) -> dict[str, float]:
        """Every figure now, by its name; memory and sizes in MiB.

        Raises:
            UnavailableError: The command ended.
        """
        if not self._up.is_running() or self._up.status() == psutil.STATUS_ZOMBIE:
            raise UnavailableError("bench_soak_failed", "`everfill up` went down.")
        groups = list(self._groups())
        found = dict(_memory(groups))
        found["processes_started_anew"] = self._started_anew(groups)
        found |= await self._tables()
        found |= await self._histories()
        found["redis_used_mib"] = await self._redis_bytes() / _MIB
        return found

    def _started_anew(self, groups: Sequence[_Group]) -> int:
        """Processes that were not there at the first look: what leaks is hidden by a restart."""
        present = {processes[0].pid for _, processes in groups}
        self._known = self._known or present
        return len(present - self._known)

    def _groups(self) -> Iterator[_Group]:
        """Processes that belong together, each with its children."""
        yield "client", [psutil.Process()]
        yield "up", [self._up]
        cell_workers = 0
        for worker in sorted(self._up.children(), key=lambda process: process.pid):
            words = worker.cmdline()
            if "cell-worker" in words:
                cell_workers += 1
                yield f"cell_worker_{cell_workers}", [worker, *worker.children(recursive=True)]
            elif "setup-worker" in words:
                yield "setup_worker", [worker, *worker.children(recursive=True)]
        state = find_live_state(stack_paths(self._app.settings))
        if state is None:
            return
        supervisor = psutil.Process(state.supervisor_pid)
        yield "supervisor", [supervisor]
        for server in supervisor.children():
            name = _SERVERS.get(server.name(), server.name())
            yield name, [server, *server.children(recursive=True)]

    async def _tables(self) -> dict[str, float]:
        async with self._app.pool.connection() as connection:
            relations = await (await connection.execute(_QUERIES["relations"])).fetchall()
            backlog = await (await connection.execute(_QUERIES["backlog"])).fetchone()
        sizes = {name: size / _MIB for name, size, _ in relations}
        dead = {name: count for name, _, count in relations}
        assert backlog
        return {
            "cells_mib": sizes["cells"],
            "queue_mib": sum(sizes[name] for name in _QUEUE_TABLES),
            "rows_mib": sizes["rows"],
            "kept_of_edits_runs_and_calls_mib": sum(sizes[n] for n in _HISTORY_TABLES),
            "dead_versions_of_queue": sum(dead[name] for name in _QUEUE_TABLES),
            "dead_versions_of_cells": dead["cells"],
            "cells_unsettled": backlog[0],
        }

    async def _histories(self) -> dict[str, float]:
        """Open workflows, the longest of their histories, and what the server keeps on disk."""
        lengths: list[int] = []
        async for found in self._temporal.list_workflows('ExecutionStatus = "Running"'):
            handle = self._temporal.get_workflow_handle(found.id, run_id=found.run_id)
            lengths.append((await handle.describe()).history_length)
        file = stack_paths(self._app.settings).temporal_file
        return {
            "open_workflows": len(lengths),
            "longest_open_history_events": max(lengths, default=0),
            "temporal_file_mib": file.stat().st_size / _MIB if file.exists() else 0.0,
        }

    async def _redis_bytes(self) -> int:
        info = await self._redis.attempt(
            lambda client: client.info("memory"),  # pyright: ignore[reportUnknownMemberType] - its own types are loose
            default={},
        )
        return int(info.get("used_memory", 0))


def _memory(groups: Sequence[_Group]) -> Iterator[tuple[str, float]]:
    """Resident memory; of Postgres, what its processes share, its buffers above all, by itself."""
    for name, processes in groups:
        resident = shared = 0
        for process in processes:
            with suppress(psutil.Error):
                found = resident_bytes(process)
                resident += found
                shared += found - own_bytes(process)
        if name == "postgres":
            resident -= shared
            yield "shared_by_postgres_mib", shared / _MIB
        yield f"memory_of_{name}_mib", resident / _MIB
