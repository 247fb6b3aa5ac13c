"""Progress as a person sees it: a live bar on a terminal, else a plain line now and then."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Final, Self

from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn

from everfill.app import App
from everfill.autofill.dispatch import Dispatched, Request
from everfill.autofill.progress import Progress as Counts
from everfill.autofill.progress import Watch, read_progress
from everfill.cli.console import err, plain
from everfill.infra.postgres import Pool, persist
from everfill.kernel.ids import CollectionId, ColumnId
from everfill.kernel.tasks import end_tasks
from everfill.tables.schema import Schema

__all__ = ["Meter", "counts_line", "dispatch_after_others", "dispatch_until_settled", "duration"]

_POLL_SECONDS: Final = 0.5
_POLL_COST_SHARE: Final = 10  # a count that takes long is repeated ten times its length later
_PLAIN_LINE_SECONDS: Final = 5.0
_BAR_CHARS: Final = 24
_WIDE_CHARS: Final = 110  # a narrower screen has a shorter bar, and figures only where they matter
_STYLES: Final = {
    "ready": "green",
    "failed": "red",
    "retrying": "yellow",
    "not_found": "yellow",
    "waiting": "yellow",
    "outdated": "yellow",
    "computing": "cyan",
}


class Meter:
    """One line that says how far a thing is, and then the next thing."""

    def __init__(self) -> None:
        self._bar = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=_BAR_CHARS if err.width >= _WIDE_CHARS else _BAR_CHARS // 3),
            TextColumn("{task.fields[told]}"),
            console=err,
            transient=True,
        )
        self._task: TaskID | None = None
        self._told_at = 0.0
        self._live = err.is_terminal

    def __enter__(self) -> Self:
        if self._live:
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Take the line away; what is printed from here on stands below what was."""
        if self._live:
            self._bar.stop()

    def tell(self, doing: str, told: str, *, done: int = 0, total: int | None = None) -> None:
        """Show what is being done, how far it is, and a few figures."""
        told = plain(told)
        if not self._live:
            self._tell_plainly(f"{doing} {told}".rstrip())
            return
        if self._task is None:
            self._task = self._bar.add_task(doing, total=total, told=told)
        self._bar.update(self._task, description=doing, completed=done, total=total, told=told)

    def _tell_plainly(self, line: str) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._told_at >= _PLAIN_LINE_SECONDS:
            self._told_at = now
            err.print(line, markup=True, soft_wrap=True)


async def dispatch_until_settled(
    app: App,
    schema: Schema,
    request: Request,
    meter: Meter,
    *,
    on_unsettled: Callable[[], None] = lambda: None,
) -> Dispatched:
    """Dispatch, and show progress until the collection is settled.

    What a killed command left undispatched is dispatched first.

    Args:
        app: The engine.
        schema: The collection's columns.
        request: What to dispatch of it.
        meter: Shows progress.
        on_unsettled: Called whenever something is unsettled.
    """
    names = {column.column_id: column.name for column in schema.computed}
    dispatch = asyncio.create_task(dispatch_after_others(app, request))
    try:
        await _watch_until_settled(
            app.pool,
            schema.collection_id,
            names,
            meter,
            dispatch=dispatch,
            on_unsettled=on_unsettled,
        )
        return await dispatch
    finally:
        await end_tasks([dispatch])


async def dispatch_after_others(app: App, request: Request) -> Dispatched:
    """Dispatch what a killed command left of its runs, then this."""
    await persist(lambda: app.dispatcher.finish_runs(request.collection_id))
    return await app.dispatcher.dispatch(request)


async def _watch_until_settled(
    pool: Pool,
    collection_id: CollectionId,
    names: Mapping[ColumnId, str],
    meter: Meter,
    *,
    dispatch: asyncio.Task[Any],
    on_unsettled: Callable[[], None],
) -> None:
    """Until nothing is unsettled and the dispatch is done; raises what that raises."""
    loop = asyncio.get_running_loop()
    watch = Watch()
    while True:
        started = loop.time()
        if dispatched := dispatch.done():
            await dispatch
        counts = await persist(lambda: read_progress(pool, collection_id, names))
        watch.add(loop.time(), counts.unsettled)
        told = counts_line(counts, watch, brief=err.is_terminal and err.width < _WIDE_CHARS)
        meter.tell("Filling", told, done=counts.settled, total=counts.cells or 1)
        pause_seconds = max(_POLL_SECONDS, _POLL_COST_SHARE * (loop.time() - started))
        if counts.unsettled:
            on_unsettled()
        elif dispatched:
            return
        if dispatched:
            await asyncio.sleep(pause_seconds)
        else:
            await asyncio.wait([dispatch], timeout=pause_seconds)


def counts_line(counts: Counts, watch: Watch | None = None, *, brief: bool = False) -> str:
    """Counts by state, rate, time left, tokens and cost, as far as there is something to say.

    A brief line leaves out what only is under way.
    """
    hidden = {"ready", "empty", "queued", "blocked"} | ({"computing"} if brief else set[str]())
    parts = [f"{counts.settled:,} of {counts.cells:,} cells"]
    parts += [
        f"[{_STYLES.get(state, 'white')}]{n:,} {state.replace('_', ' ')}[/]"
        for state, n in counts.total.items()
        if n and state not in hidden
    ]
    waiting = sum(counts.total.get(state, 0) for state in ("queued", "blocked"))
    if waiting and not brief:
        parts.append(f"{waiting:,} queued")
    if watch and watch.cells_per_second >= 1:
        parts.append(f"{watch.cells_per_second:,.0f}/s")
        if watch.seconds_left is not None:
            parts.append(f"{duration(watch.seconds_left)} left")
    spending = counts.spending
    if spending.input_tokens or spending.output_tokens:
        parts.append(f"{spending.input_tokens + spending.output_tokens:,} tokens")
    if spending.cost_usd:
        parts.append(f"${spending.cost_usd:,.4f}")
    return " · ".join(parts)


def duration(seconds: float) -> str:
    """Seconds as a person says them: `42 s`, `3 min 5 s`, `2 h 10 min`."""
    whole = round(seconds)
    minutes, rest = divmod(whole, 60)
    hours, minutes_rest = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes_rest} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
