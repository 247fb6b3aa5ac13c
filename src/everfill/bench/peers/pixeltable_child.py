# Pixeltable is installed for the Python that runs this file and for no other.
# pyright: reportMissingImports=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownParameterType=false
# pyright: reportUnknownArgumentType=false
"""A process of `pixeltable_fill.py` that works inside Pixeltable: it loads rows or edits.

It speaks JSON lines: one `ready` when everything is open, then one answer for each line on its
standard input, so that the parent decides when the clock starts and nobody pays for start-up.
What Pixeltable prints goes to standard error.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import pixeltable as pxt
import psutil
from pixeltable_check import check, is_right, words_of
from pixeltable_functions import Calls, answer_of, one_of, one_of_batch, two_of, two_of_batch

TABLE = "words"


class Channel:
    """JSON lines to the parent, on what was standard output before Pixeltable printed there."""

    def __init__(self) -> None:
        self._out = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)

    def tell(self, event: str, **fields: object) -> None:
        """Send one line."""
        self._out.write(json.dumps({"event": event, **fields}) + "\n")
        self._out.flush()


def add_columns(table: pxt.Table, asked: argparse.Namespace) -> None:
    """The computed columns; what is there already stays."""
    if asked.provider_url:
        answer = answer_of(table.word, asked.provider_url, asked.connections)
        table.add_computed_column(answer=answer, if_exists="ignore")
        return
    if asked.functions == "native":
        table.add_computed_column(one="1 " + table.word, if_exists="ignore")
        table.add_computed_column(two="2 " + table.one, if_exists="ignore")
        return
    one, two = {"udf": (one_of, two_of), "batched": (one_of_batch, two_of_batch)}[asked.functions]
    table.add_computed_column(one=one(table.word), if_exists="ignore")
    table.add_computed_column(two=two(table.one), if_exists="ignore")


def names_of(table: pxt.Table) -> list[str]:
    """The columns, in order of their making."""
    return list(table.columns())


def insert(table: pxt.Table, source: Path, chunk_rows: int, *, resume: bool) -> None:
    """Import the file: in one `insert`, or in one for each chunk of rows."""
    if not (chunk_rows or resume):
        table.insert(str(source))
        return
    frame = pd.read_csv(source)
    if resume:
        there = {row["word"] for row in table.select(table.word).collect()}
        frame = frame[~frame["word"].isin(there)]
    step = chunk_rows or max(1, len(frame))
    for start in range(0, len(frame), step):
        table.insert(frame.iloc[start : start + step])


def read(table: pxt.Table) -> list[tuple[str, ...]]:
    """Every cell, as a user reads them."""
    names = names_of(table)
    found = table.select(*(getattr(table, name) for name in names)).collect()
    return [tuple(row[name] for name in names) for row in found]


def cpu_seconds(postmaster: int) -> tuple[float, float]:
    """What this process and its Postgres (with the backends that ended) have used so far."""
    own = psutil.Process().cpu_times()
    server = psutil.Process(postmaster)
    times = server.cpu_times()
    postgres = times.user + times.system + times.children_user + times.children_system
    for backend in server.children():
        postgres += sum(backend.cpu_times()[:2])
    return own.user + own.system, postgres


def postmaster_of(home: Path) -> int:
    """The process number of Pixeltable's embedded Postgres."""
    return int((home / "pgdata" / "postmaster.pid").read_text(encoding="utf-8").split()[0])


def load(asked: argparse.Namespace, channel: Channel, home: Path) -> None:
    """Create or open the table, wait for the word to start, import, read everything back."""
    started = time.monotonic()
    pxt.init()
    table = pxt.create_table(TABLE, {"word": pxt.String}, if_exists="ignore")
    if not asked.columns_last:
        add_columns(table, asked)
    rows_before = table.count()
    postmaster = postmaster_of(home)
    opened = time.monotonic() - started
    channel.tell("ready", postmaster=postmaster, rows=rows_before, open_seconds=opened)
    sys.stdin.readline()
    cpu_before = cpu_seconds(postmaster)
    begun = time.monotonic()
    insert(table, asked.source, asked.chunk_rows, resume=asked.resume)
    if asked.columns_last:
        add_columns(table, asked)
    inserted = time.monotonic()
    channel.tell("inserted", at=inserted)
    found = read(table)
    ended = time.monotonic()
    cpu_after = cpu_seconds(postmaster)
    channel.tell(
        "loaded",
        begun=begun,
        insert_seconds=inserted - begun,
        read_seconds=ended - inserted,
        client_cpu_seconds=cpu_after[0] - cpu_before[0],
        postgres_cpu_seconds=cpu_after[1] - cpu_before[1],
        calls_waiting_peak=Calls.waiting_peak,
        **check(found, names_of(table), words_of(asked.source), asked.answer),
    )


def edit(asked: argparse.Namespace, channel: Channel) -> None:
    """For each line, give one row another word, and wait until its computed value shows it."""
    pxt.init()
    table = pxt.get_table(TABLE)
    names = names_of(table)
    channel.tell("ready")
    for line in sys.stdin:
        old, new = line.split()
        started = time.monotonic()
        table.update({"word": new}, where=table.word == old)
        shown = table.where(table.word == new).collect()
        ended = time.monotonic()
        rows = [tuple(row[name] for name in names) for row in shown]
        right = len(rows) == 1 and is_right(rows[0], names, asked.answer)
        channel.tell("edited", seconds=ended - started, ended=ended, right=right)


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line, as `pixeltable_fill.py` gives it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("part", choices=("load", "edit"))
    parser.add_argument("--source", type=Path)
    parser.add_argument("--functions", default="native")
    parser.add_argument("--provider-url", default="")
    parser.add_argument("--connections", type=int, default=0)
    parser.add_argument("--chunk-rows", type=int, default=0)
    parser.add_argument("--answer", default="")
    parser.add_argument("--columns-last", action="store_true")
    parser.add_argument("--resume", action="store_true")
    return parser.parse_args(given)


def main() -> None:
    """Do one part."""
    channel, asked = Channel(), arguments()
    home = Path(os.environ["PIXELTABLE_HOME"])
    if asked.part == "load":
        load(asked, channel, home)
    else:
        edit(asked, channel)


if __name__ == "__main__":
    main()
