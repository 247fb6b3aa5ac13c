"""`everfill bench`: measure what Everfill claims, on this machine."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from everfill.cli.console import AsJson, run
from everfill.cli.publishing import Plot, RecordFile, publish, tell
from everfill.kernel.errors import InvalidError

__all__ = ["bench"]

bench = typer.Typer(help="Measure what Everfill claims, on this machine.", no_args_is_help=True)


@bench.callback()
def begin() -> None:
    """A benchmark that is told to end takes along what it started, as at Ctrl-C."""
    signal.signal(signal.SIGTERM, _interrupt)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    signal.raise_signal(signal.SIGINT)


@bench.command()
def simulate(
    cells: Annotated[
        str, typer.Option(help="Cells to fill; several sizes with commas between.")
    ] = "100000,1000000,10000000",
    workers: Annotated[int, typer.Option(help="Workers.")] = 200,
    batch_cells: Annotated[int, typer.Option(help="Slots of a worker.")] = 50,
    collections: Annotated[int, typer.Option(help="Collections.")] = 16,
    namespaces: Annotated[int, typer.Option(help="Namespaces.")] = 4,
    skew: Annotated[float, typer.Option(help="Exponent of the collections' sizes.")] = 0.0,
    collection_cap: Annotated[
        int | None, typer.Option(help="Most cells in flight of a collection.")
    ] = None,
    namespace_cap: Annotated[
        int | None, typer.Option(help="Most cells in flight of a namespace.")
    ] = None,
    dirty_rate: Annotated[
        float, typer.Option(help="Share of the cells in flight signalled again in a round.")
    ] = 0.0,
    failure_rate: Annotated[
        float, typer.Option(help="Share of the calls that fail in passing.")
    ] = 0.0,
    loss_rate: Annotated[float, typer.Option(help="Share of the workers lost in a round.")] = 0.0,
    lease_rounds: Annotated[
        int, typer.Option(help="Rounds until a lost worker's cells are taken back.")
    ] = 5,
    retry_rounds: Annotated[int, typer.Option(help="Rounds until a failed call is retried.")] = 3,
    storm_rounds: Annotated[
        int, typer.Option(help="Rounds between two storms of signals; 0: none.")
    ] = 0,
    storm_cells: Annotated[int, typer.Option(help="Cells that a storm signals.")] = 1_000,
    events_per_cell: Annotated[int, typer.Option(help="History events of an activity.")] = 2,
    event_bytes: Annotated[int, typer.Option(help="Bytes of a history event.")] = 512,
    payload_bytes: Annotated[int, typer.Option(help="Bytes of an operation's payload.")] = 512,
    entry_bytes: Annotated[int, typer.Option(help="Bytes of a queued cell's entry.")] = 192,
    index_bytes: Annotated[int, typer.Option(help="Bytes of that entry in indexes.")] = 96,
    seed: Annotated[int, typer.Option(help="Of every random choice.")] = 1,
    to: RecordFile = None,
    plot: Plot = None,
    as_json: AsJson = False,
) -> None:
    """Simulate the scheduling of two designs: an orchestrator alone, and Everfill.

    In one process, without a database: what is compared is the shape of the work.
    """
    from everfill.bench import simulator  # noqa: PLC0415 - start-up of others

    async def measure() -> None:
        sizes = _sizes(cells)
        scenario = simulator.Scenario(
            cells=max(sizes),
            workers=workers,
            batch_cells=batch_cells,
            collections=collections,
            namespaces=namespaces,
            skew=skew,
            collection_cap_cells=collection_cap,
            namespace_cap_cells=namespace_cap,
            dirty_rate=dirty_rate,
            failure_rate=failure_rate,
            loss_rate=loss_rate,
            lease_rounds=lease_rounds,
            retry_rounds=retry_rounds,
            storm_rounds=storm_rounds,
            storm_cells=storm_cells,
            events_per_cell=events_per_cell,
            event_bytes=event_bytes,
            payload_bytes=payload_bytes,
            entry_bytes=entry_bytes,
            index_bytes=index_bytes,
            seed=seed,
        )
        record = await asyncio.to_thread(simulator.compare, scenario, sizes, tell)
        publish(record, simulator.plot, to=to, plot=plot, as_json=as_json)

    run(measure())


@bench.command()
def queue(
    depths: Annotated[
        str, typer.Option(help="Cells queued when the drain begins; several with commas between.")
    ] = "10000,100000,1000000,10000000",
    batches: Annotated[
        str, typer.Option(help="Most cells of one claim; several with commas between.")
    ] = "200,1000",
    drain: Annotated[int, typer.Option(help="Most cells drained at a depth.")] = 200_000,
    workers: Annotated[
        str, typer.Option(help="Worker processes; several numbers with commas between.")
    ] = "2",
    collections: Annotated[int, typer.Option(help="Collections.")] = 16,
    namespaces: Annotated[int, typer.Option(help="Namespaces.")] = 4,
    payload_bytes: Annotated[int, typer.Option(help="Bytes of an answer.")] = 200,
    rounds: Annotated[int, typer.Option(help="How often each is measured.")] = 2,
    peers_python: Annotated[
        Path | None,
        typer.Option(help="A Python with requirements/peers-queues.txt installed.", metavar="FILE"),
    ] = None,
    peers: Annotated[
        str, typer.Option(help="Which of the others, with commas between.")
    ] = "pgqueuer,procrastinate,dbos",
    peers_depth_max: Annotated[
        int, typer.Option(help="Deepest queue the others are measured at.")
    ] = 1_000_000,
    peers_seconds_max: Annotated[int, typer.Option(help="Longest drain of another queue.")] = 30,
    to: RecordFile = None,
    plot: Plot = None,
    as_json: AsJson = False,
) -> None:
    """Claim and finalize over the real Postgres, at depth, beside other Postgres queues.

    In databases of its own on Everfill's server, embedded or configured; they are dropped again.
    """
    from everfill.bench import queue as bench  # noqa: PLC0415 - start-up of others
    from everfill.bench.scratch import scratch_settings  # noqa: PLC0415 - the same
    from everfill.infra.stack import open_stack  # noqa: PLC0415 - the same

    async def measure() -> None:
        plan = bench.Plan(
            depths=_sizes(depths),
            batches=_sizes(batches),
            drain=drain,
            workers=_sizes(workers),
            collections=collections,
            namespaces=namespaces,
            payload_bytes=payload_bytes,
            rounds=rounds,
            peers_python=peers_python,
            peers=peers.split(","),
            peers_depth_max=peers_depth_max,
            seconds_max=peers_seconds_max,
        )
        with scratch_settings() as settings:
            async with open_stack(settings) as endpoints:
                record = await bench.compare(endpoints.postgres_url, plan, tell)
        publish(record, bench.plot, to=to, plot=plot, as_json=as_json)

    run(measure())


@bench.command()
def fill(
    rows: Annotated[int, typer.Option(help="Rows of the fill of two templates.")] = 100_000,
    latencies: Annotated[
        str, typer.Option(help="Latencies of the provider in ms, with commas between.")
    ] = "20,200,2000",
    provider_rows: Annotated[int, typer.Option(help="Rows of a provider's fill.")] = 5_000,
    slots: Annotated[int, typer.Option(help="Calls under way at once.")] = 200,
    edits: Annotated[int, typer.Option(help="Rows edited in mid-run.")] = 20,
    edit_rows: Annotated[int, typer.Option(help="Rows of the fill that is edited.")] = 40_000,
    rounds: Annotated[int, typer.Option(help="How often each is measured.")] = 2,
    pixeltable_python: Annotated[
        Path | None,
        typer.Option(
            help="A Python with requirements/peers-pixeltable.txt installed.", metavar="FILE"
        ),
    ] = None,
    to: RecordFile = None,
    plot: Plot = None,
    as_json: AsJson = False,
) -> None:
    """Fill whole tables, from the import to the last cell, beside Pixeltable.

    Two chained templates, a provider-like server, edits in mid-run, and a kill -9 at half.
    """
    from everfill.bench import fill as bench  # noqa: PLC0415 - start-up of others

    async def measure() -> None:
        plan = bench.Plan(
            rows=rows,
            latencies_ms=_sizes(latencies),
            provider_rows=provider_rows,
            slots=slots,
            edits=edits,
            edit_rows=edit_rows,
            rounds=rounds,
            pixeltable_python=pixeltable_python,
        )
        record = await bench.compare(plan, tell)
        publish(record, bench.plot, to=to, plot=plot, as_json=as_json)

    run(measure())


@bench.command()
def edit(
    cells: Annotated[int, typer.Option(help="Cells of the bulk run.")] = 1_000_000,
    edits: Annotated[int, typer.Option(help="Edits in its collection, and in another.")] = 150,
    workers: Annotated[int, typer.Option(help="Cell workers, of 20 slots each.")] = 2,
    latency_ms: Annotated[int, typer.Option(help="What the provider takes to answer.")] = 50,
    cap_cells: Annotated[int, typer.Option(help="Most cells in flight of a collection.")] = 30,
    to: RecordFile = None,
    plot: Plot = None,
    as_json: AsJson = False,
) -> None:
    """Edit single cells while a bulk run is queued: how soon do they start, do caps hold?"""
    from everfill.bench import edit as bench  # noqa: PLC0415 - start-up of others

    async def measure() -> None:
        plan = bench.Plan(
            cells=cells, edits=edits, workers=workers, latency_ms=latency_ms, cap_cells=cap_cells
        )
        record = await bench.measure(plan, tell)
        publish(record, bench.plot, to=to, plot=plot, as_json=as_json)

    run(measure())


@bench.command()
def soak(
    minutes: Annotated[float, typer.Option(help="How long, once the capacity is known.")] = 60.0,
    load: Annotated[float, typer.Option(help="Share of the capacity that is asked for.")] = 0.8,
    capacity_seconds: Annotated[
        float, typer.Option(help="How long the capacity is measured.")
    ] = 60.0,
    sample_seconds: Annotated[float, typer.Option(help="Between two looks at everything.")] = 30.0,
    workers: Annotated[int, typer.Option(help="Cell workers.")] = 2,
    tables: Annotated[int, typer.Option(help="Collections of two chained templates.")] = 4,
    rows: Annotated[int, typer.Option(help="Rows of each of them.")] = 20_000,
    latency_ms: Annotated[int, typer.Option(help="What the provider takes to answer.")] = 100,
    to: RecordFile = None,
    plot: Plot = None,
    as_json: AsJson = False,
) -> None:
    """Work below capacity for an hour: does anything grow, or become slower?

    Re-imports, reprocesses, model calls, edits, rows and collections that come and go.
    """
    from everfill.bench import soak as bench  # noqa: PLC0415 - start-up of others

    async def measure() -> None:
        plan = bench.Plan(
            minutes=minutes,
            load=load,
            capacity_seconds=capacity_seconds,
            sample_seconds=sample_seconds,
            workers=workers,
            tables=tables,
            rows=rows,
            latency_ms=latency_ms,
        )
        record = await bench.measure(plan, tell)
        publish(record, bench.plot, to=to, plot=plot, as_json=as_json)

    run(measure())


@bench.command()
def profile(
    rows: Annotated[int, typer.Option(help="Rows.")] = 100_000,
    to: RecordFile = None,
    plot: Plot = None,
    as_json: AsJson = False,
) -> None:
    """Show where a cell's time goes, layer by layer, and what the whole costs beside that."""
    from everfill.bench import profile as bench  # noqa: PLC0415 - start-up of others

    async def measure() -> None:
        record = await bench.measure(rows, tell)
        publish(record, bench.plot, to=to, plot=plot, as_json=as_json)

    run(measure())


@bench.command()
def naive(
    rows: Annotated[
        str, typer.Option(help="Rows of the naive shapes, growing, with commas between.")
    ] = "500,1000,2000,2001,5000,10000,20000,50000",
    repaired_rows: Annotated[
        str, typer.Option(help="Rows of the repaired shapes, growing.")
    ] = "10000,20000,100000",
    everfill_cells: Annotated[
        str, typer.Option(help="Cells that Everfill fills beside them.")
    ] = "1000,10000,100000",
    seconds_max: Annotated[float, typer.Option(help="How long one size may take.")] = 120.0,
    to: RecordFile = None,
    plot: Plot = None,
    as_json: AsJson = False,
) -> None:
    """Run one Temporal activity a cell, until it breaks, and Everfill on as many cells."""
    from everfill.bench.naive import compare as bench  # noqa: PLC0415 - start-up of others
    from everfill.bench.naive.plan import NaivePlan  # noqa: PLC0415 - the same

    async def measure() -> None:
        plan = NaivePlan(
            rows=tuple(_sizes(rows)),
            repaired_rows=tuple(_sizes(repaired_rows)),
            seconds_max=seconds_max,
        )
        record = await bench.compare(plan, _sizes(everfill_cells), tell)
        publish(record, bench.plot, to=to, plot=plot, as_json=as_json)

    run(measure())


def _sizes(text: str) -> list[int]:
    """Whole numbers with commas between; `_` may part their digits."""
    try:
        sizes = [int(part) for part in text.split(",")]
    except ValueError:
        sizes = []
    if not sizes or min(sizes) < 1:
        raise InvalidError(
            "option_invalid",
            f"{text!r} is no list of sizes.",
            hint="Write whole numbers with commas between: 100000,1000000.",
        )
    return sizes
