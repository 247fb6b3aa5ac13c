"""The scripts that measure other queues: their report, their command line, their imports."""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from everfill.bench.peers import peer
from everfill.bench.peers.peer import Drained, Enqueued, Meter, Request

FOLDER = Path(peer.__file__).parent
SCRIPTS = sorted(FOLDER.glob("*_queue.py"))


class Instant:
    """A subject without a queue."""

    name = "instant"
    distribution = "psycopg"
    latency_of = "one claim"
    fairness = "none"
    variants = ("plain", "other")

    def settings(self, request: Request) -> Mapping[str, str]:
        return {"batch": f"{request.batch}: as asked"}

    def install(self, request: Request) -> None:
        raise NotImplementedError

    def enqueue(self, request: Request) -> Enqueued:
        raise NotImplementedError

    def work(self, request: Request, meter: Meter) -> None:
        raise NotImplementedError

    def count_finished(self, request: Request) -> int:
        raise NotImplementedError


def ask(*more: str, dsn: str = "dbname=x", depth: int = 100, drain: int = 50) -> Request:
    given = ["--dsn", dsn, "--depth", str(depth), "--drain", str(drain), *more]
    return peer.parse_arguments(Instant(), given)


def drained(claims_ms: list[float]) -> Drained:
    return Drained(jobs=60, seconds=0.5, finished=80, cpu_seconds=0.4, claims_ms=claims_ms)


def test_a_report_holds_every_figure_under_its_name() -> None:
    request = ask("--workers", "3", "--batch", "7")
    found = peer.report(
        Instant(),
        request,
        Enqueued(jobs=100, seconds=0.1),
        drained([float(n) for n in range(1, 101)]),
        Instant().settings(request),
    )
    whole = json.loads(json.dumps({**found, **peer.wal(1000.4, 500.2)}))
    assert whole.pop("version")
    assert whole == {
        "name": "instant",
        "settings": {"variant": "plain", "workers": "3 processes", "batch": "7: as asked"},
        "depth": 100,
        "drained": 60,
        "enqueue_per_second": 1000.0,
        "drain_per_second": 120.0,
        "latency_ms": {"p50": 51.0, "p99": 100.0, "of": "one claim"},
        "wal_bytes_per_job": 1501,
        "wal_bytes_per_job_parts": {"enqueue": 1000, "drain": 500},
        "cpu_seconds_per_1000_jobs": 5.0,
        "fairness": "none",
    }


def test_a_drain_without_a_claim_has_no_latency() -> None:
    request = ask()
    found = peer.report(Instant(), request, Enqueued(jobs=1, seconds=1.0), drained([]), {})
    assert found["latency_ms"] == {"p50": None, "p99": None, "of": "one claim"}


@pytest.mark.parametrize(
    "wrong",
    [
        ("--drain", "101"),
        ("--drain", "0"),
        ("--workers", "0"),
        ("--batch", "-1"),
        ("--seconds-max", "0"),
        ("--variant", "fastest"),
    ],
)
def test_a_request_that_cannot_be_measured_is_refused(
    wrong: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as raised:
        ask(*wrong)
    assert raised.value.code == 2
    assert wrong[0] in capsys.readouterr().err


@pytest.mark.parametrize(
    "dsn",
    [
        "host=/run/pg port=5999 user=ann dbname=fresh",
        "postgresql://ann@/fresh?host=/run/pg&port=5999",
    ],
)
def test_both_forms_of_a_dsn_become_the_same_url(dsn: str) -> None:
    url = ask(dsn=dsn).url("postgresql+psycopg")
    assert url == "postgresql+psycopg://ann@/fresh?host=%2Frun%2Fpg&port=5999"


def test_a_failure_is_one_line_on_stderr_and_no_report(
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = ["--dsn", "host=/nowhere dbname=x", "--depth", "1", "--drain", "1"]
    with pytest.raises(SystemExit) as raised:
        peer.main(Instant(), given)
    told = capsys.readouterr()
    assert raised.value.code == 1
    assert told.out == ""
    assert told.err.startswith("instant: OperationalError: ")
    assert told.err.count("\n") == 1


@pytest.mark.parametrize("script", [*SCRIPTS, FOLDER / "peer.py"], ids=lambda path: path.name)
def test_a_script_imports_nothing_of_everfill(script: Path) -> None:
    tree = ast.parse(script.read_text(encoding="utf-8"))
    roots = {
        name.split(".")[0]
        for node in ast.walk(tree)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or "."]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert len(roots) > 1
    assert "everfill" not in roots


def test_there_are_three_scripts() -> None:
    assert [path.stem for path in SCRIPTS] == [
        "dbos_queue",
        "pgqueuer_queue",
        "procrastinate_queue",
    ]
