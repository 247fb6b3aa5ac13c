"""What the subjects share: the command line, the worker processes, the clock and the report.

A subject is another Postgres queue, run as a script by a Python that has it installed:
`python pgqueuer_queue.py --dsn DSN --depth N --drain M --workers W --batch B`. It imports
nothing of everfill. The order is the same for all: install the schema, enqueue N jobs in bulk,
`vacuum (analyze)` once so that no subject is measured on missing statistics, start the
workers, let all of them go at the same moment, and stop the clock when M jobs are finished
*in the database*, or when the time is up. One JSON object goes to stdout.

How it is counted:
- A job is drained when the peer's own call that records it as finished has returned.
- `latency_ms` is the time of one claim as the peer makes it; the peer says what it holds.
- `wal_bytes_per_job` is what the whole server wrote, enqueue plus drain, so nothing else may
  run on that server; the two halves stand beside it.
- `cpu_seconds_per_1000_jobs` is the worker processes alone, from the start of the drain.
- After the drain, the database is asked how many jobs are finished. An answer that differs
  from what the workers counted is an error, not a figure.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Protocol
from urllib.parse import urlencode

import psycopg
from psycopg.conninfo import conninfo_to_dict

START_SECONDS_MAX = 60.0  # for a worker process to be connected and ready
STOP_SECONDS_MAX = 20.0  # for a worker process to finish what it holds and end
LOOK_SECONDS = 0.005  # between two looks at the counters
SAMPLES_MAX = 200_000  # claims timed by one worker process

_CONTEXT = multiprocessing.get_context("spawn")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What to measure; a batch of 0 stands for the subject's fastest one."""

    dsn: str
    depth: int
    drain: int
    workers: int
    batch: int
    payload_bytes: int
    seconds_max: float
    variant: str

    def connection(self) -> dict[str, str]:
        """The DSN as keywords, whichever of its two forms was given."""
        return {key: str(value) for key, value in conninfo_to_dict(self.dsn).items()}

    def url(self, scheme: str) -> str:
        """The DSN as a URL, its host in the query so that it may be a socket folder."""
        given = self.connection()
        user, name = given.pop("user", ""), given.pop("dbname", "")
        return f"{scheme}://{user}@/{name}?{urlencode(given)}"

    def payload(self) -> str:
        """The payload of every job, and its result where the peer keeps results."""
        return "x" * self.payload_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Enqueued:
    """How the depth was made: the measured part, in the fastest documented way."""

    jobs: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Drained:
    """What the drain took; `finished` also counts what was under way when the clock stopped."""

    jobs: int
    seconds: float
    finished: int
    cpu_seconds: float
    claims_ms: Sequence[float]


class Peer(Protocol):
    """One subject; its methods run in the parent but for `work`."""

    name: str
    distribution: str
    latency_of: str
    fairness: str
    variants: Sequence[str]

    def settings(self, request: Request) -> Mapping[str, str]:
        """Every setting chosen, and why."""
        ...

    def install(self, request: Request) -> None:
        """Make the schema in an empty database."""
        ...

    def enqueue(self, request: Request) -> Enqueued:
        """Make the depth."""
        ...

    def work(self, request: Request, meter: Meter) -> None:
        """Drain until the meter says stop, then end what is under way."""
        ...

    def count_finished(self, request: Request) -> int:
        """How many jobs the database holds as finished."""
        ...


class Meter:
    """A worker process's counters and clock, and its link to the parent. Safe from threads."""

    def __init__(self, place: int, shared: _Shared) -> None:
        self._place = place
        self._shared = shared
        self._lock = threading.Lock()
        self._gone = False
        self._cpu_seconds = 0.0
        self.claims_ms: list[float] = []

    def gate(self) -> None:
        """Called before every claim: the first call waits until all workers are ready."""
        if self._gone:
            return
        with self._lock:
            if not self._gone:
                self._shared.ready[self._place] = 1
                if not self._shared.go.wait(START_SECONDS_MAX):
                    raise TimeoutError("the other workers did not get ready")
                self._cpu_seconds = time.process_time()
                self._gone = True

    def claimed(self, started: float) -> None:
        """A claim that began at `started` (of `time.perf_counter`) brought at least one job."""
        if len(self.claims_ms) < SAMPLES_MAX:
            self.claims_ms.append((time.perf_counter() - started) * 1000)

    def finished(self, jobs: int) -> None:
        """So many more jobs are recorded as finished in the database."""
        with self._lock:
            self._shared.finished[self._place] += jobs

    def wait(self) -> None:
        """Wait until the clock has stopped."""
        self._shared.stop.wait()

    def when_over(self, call: Callable[[], object]) -> None:
        """Call this from a thread once the clock has stopped."""

        def wait() -> None:
            self.wait()
            call()

        threading.Thread(target=wait, daemon=True).start()

    def report(self) -> tuple[float, list[float]]:
        """The CPU seconds since the gate, and the claims."""
        return time.process_time() - self._cpu_seconds, self.claims_ms


class _Shared:
    """What the parent and the workers both see."""

    def __init__(self, workers: int) -> None:
        self.ready = _CONTEXT.Array("b", workers, lock=False)
        self.finished = _CONTEXT.Array("q", workers, lock=False)
        self.go = _CONTEXT.Event()
        self.stop = _CONTEXT.Event()
        self.reports = _CONTEXT.Queue()


def main(peer: Peer, arguments: Sequence[str] | None = None) -> None:
    """Run a subject from the command line; any failure is one line on stderr and exit code 1."""
    request = parse_arguments(peer, arguments)
    try:
        answer = measure(peer, request)
    except Exception as error:  # noqa: BLE001 - the edge of the program: said in one line
        said = " ".join(str(error).split())
        sys.stderr.write(f"{peer.name}: {type(error).__name__}: {said}\n")
        raise SystemExit(1) from None
    sys.stdout.write(json.dumps(answer) + "\n")


def parse_arguments(peer: Peer, arguments: Sequence[str] | None = None) -> Request:
    """The command line as a request."""
    parser = argparse.ArgumentParser(description=f"Measure {peer.name} on a fresh database.")
    parser.add_argument("--dsn", required=True, help="an empty database: keywords or a URL")
    parser.add_argument("--depth", type=int, required=True, help="jobs to enqueue")
    parser.add_argument("--drain", type=int, required=True, help="jobs to drain of them")
    parser.add_argument("--workers", type=int, default=2, help="worker processes")
    parser.add_argument("--batch", type=int, default=0, help="0: the subject's fastest")
    parser.add_argument("--payload-bytes", type=int, default=200)
    parser.add_argument("--seconds-max", type=float, default=60.0, help="of the drain")
    parser.add_argument("--variant", choices=peer.variants, default=peer.variants[0])
    given = parser.parse_args(arguments)
    if not 0 < given.drain <= given.depth:
        parser.error("--drain must be more than 0 and at most --depth")
    if given.workers < 1 or given.batch < 0 or given.seconds_max <= 0:
        parser.error("--workers, --batch and --seconds-max must be positive")
    return Request(**vars(given))


def measure(peer: Peer, request: Request) -> dict[str, Any]:
    """Install, enqueue, drain and check; the report."""
    with psycopg.connect(request.dsn, autocommit=True) as connection:
        synchronous = _one(connection, "show synchronous_commit")
        peer.install(request)
        before = _one(connection, "select pg_current_wal_lsn()")
        enqueued = peer.enqueue(request)
        full = _one(connection, "select pg_current_wal_lsn()")
        connection.execute("vacuum (analyze)")
        start = _one(connection, "select pg_current_wal_lsn()")
        drained = drain(peer, request)
        end = _one(connection, "select pg_current_wal_lsn()")
        enqueue_bytes = int(_one(connection, "select %s::pg_lsn - %s::pg_lsn", full, before))
        drain_bytes = int(_one(connection, "select %s::pg_lsn - %s::pg_lsn", end, start))
    counted = peer.count_finished(request)
    if counted != drained.finished:
        raise AssertionError(f"{drained.finished} jobs counted, {counted} in the database")
    settings = {**peer.settings(request), "synchronous_commit": f"{synchronous} (the server's)"}
    return {
        **report(peer, request, enqueued, drained, settings),
        **wal(enqueue_bytes / request.depth, drain_bytes / max(drained.finished, 1)),
    }


def drain(peer: Peer, request: Request) -> Drained:
    """Start the workers, let them go at once, stop the clock at the wanted number of jobs."""
    shared = _Shared(request.workers)
    processes = [
        _CONTEXT.Process(target=_work, args=(peer, request, place, shared), daemon=True)
        for place in range(request.workers)
    ]
    try:
        for process in processes:
            process.start()
        _wait_until_ready(shared, processes)
        started = time.perf_counter()
        shared.go.set()
        while sum(shared.finished) < request.drain:
            if time.perf_counter() - started > request.seconds_max:
                break
            _check_alive(processes)
            time.sleep(LOOK_SECONDS)
        jobs, seconds = sum(shared.finished), time.perf_counter() - started
        shared.stop.set()
        reports = [shared.reports.get(timeout=STOP_SECONDS_MAX) for _ in processes]
        for process in processes:
            process.join(STOP_SECONDS_MAX)
    finally:
        for process in processes:
            process.kill()
    return Drained(
        jobs=jobs,
        seconds=seconds,
        finished=sum(shared.finished),
        cpu_seconds=sum(cpu_seconds for cpu_seconds, _ in reports),
        claims_ms=[took for _, claims in reports for took in claims],
    )


def report(
    peer: Peer,
    request: Request,
    enqueued: Enqueued,
    drained: Drained,
    settings: Mapping[str, str],
) -> dict[str, Any]:
    """The figures under their names, without the WAL."""
    return {
        "name": peer.name,
        "version": version(peer.distribution),
        "settings": {
            "variant": request.variant,
            "workers": f"{request.workers} processes",
            **settings,
        },
        "depth": request.depth,
        "drained": drained.jobs,
        "enqueue_per_second": round(enqueued.jobs / enqueued.seconds, 1),
        "drain_per_second": round(drained.jobs / drained.seconds, 1),
        "latency_ms": {
            "p50": percentile(drained.claims_ms, 0.5),
            "p99": percentile(drained.claims_ms, 0.99),
            "of": peer.latency_of,
        },
        "cpu_seconds_per_1000_jobs": round(
            drained.cpu_seconds * 1000 / max(drained.finished, 1), 4
        ),
        "fairness": peer.fairness,
    }


def wal(enqueue_bytes: float, drain_bytes: float) -> dict[str, Any]:
    """The WAL of one job, its two halves beside it."""
    return {
        "wal_bytes_per_job": round(enqueue_bytes + drain_bytes),
        "wal_bytes_per_job_parts": {
            "enqueue": round(enqueue_bytes),
            "drain": round(drain_bytes),
        },
    }


def percentile(values: Sequence[float], share: float) -> float | None:
    """The value that a share of the values do not exceed; none of none."""
    if not values:
        return None
    ordered = sorted(values)
    return round(ordered[min(len(ordered) - 1, int(share * len(ordered)))], 3)


def _work(peer: Peer, request: Request, place: int, shared: _Shared) -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    meter = Meter(place, shared)
    peer.work(request, meter)
    shared.reports.put(meter.report())


def _end_with_parent() -> None:
    """A worker whose parent was killed would drain on, and then wait for ever."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _wait_until_ready(shared: _Shared, processes: Sequence[Any]) -> None:
    deadline = time.perf_counter() + START_SECONDS_MAX
    while not all(shared.ready):
        _check_alive(processes)
        if time.perf_counter() > deadline:
            raise TimeoutError(f"{START_SECONDS_MAX:.0f} s, and not every worker is ready")
        time.sleep(LOOK_SECONDS)


def _check_alive(processes: Sequence[Any]) -> None:
    for process in processes:
        if process.exitcode is not None:
            raise RuntimeError(f"a worker process ended early, with exit code {process.exitcode}")


def _one(connection: psycopg.Connection[Any], query: str, *given: str) -> str:
    row = connection.execute(query.encode(), given or None).fetchone()
    assert row is not None
    return str(row[0])
