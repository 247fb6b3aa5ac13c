"""Measure Pixeltable at the work that `everfill bench fill` gives to Everfill.

    python pixeltable_fill.py batch --folder NEW --rows 100000 --functions native
    python pixeltable_fill.py provider --folder NEW --rows 5000 --provider-url URL
    python pixeltable_fill.py edit --folder NEW --rows 5000 --provider-url URL
    python pixeltable_fill.py crash --folder NEW --rows 5000 --provider-url URL

It runs under a Python that has `requirements/peers-pixeltable.txt` and prints one JSON object. The
work: rows of one text column `word`, and either `one` = "1 " + word and `two` = "2 " + one, or one
column that a provider answers (a POST of `{"input": word}` gives `{"output": text}`, and a GET of
`/calls` on its host gives `{"calls": n}`).

Pixeltable at its best: its columns are declared before the import (adding them afterwards writes
every row a second and a third time), the import is one `insert` of the file, the provider is an
async function with one shared session. `--chunk-rows` makes it an `insert` for each chunk, so that
what is done is committed, and visible, sooner. Pixeltable starts up to 2,048 calls at once; how
many are really under way is set by the function's own HTTP session, `--connections`.

What to expect: an `insert` is one transaction that holds the table. So an edit waits until it is
over (trying again every 0.1 to 0.5 s, without a place in line, so chunks seldom let it in), and a
process that is killed loses every call that its `insert` has paid. The table opens again by itself.

How it is counted:
- `seconds` runs from the start of the import until a read of all cells has returned; then every
  value is compared. The start of the process, its Postgres and the table stand beside it.
- `cpu_seconds` is the importing process and its Postgres with all backends, over that time.
- `peak_resident_mib` is the importing process, and it together with Postgres (shared pages once).
- `first_visible_cell_seconds` is a second connection's view, looked at every 50 ms.

On this machine: each run has its own home in the folder, which must be new. Pixeltable sends no
telemetry unless a subscriber is installed, and none is. Run as root, its embedded Postgres makes a
system user `pgserver` (with `useradd`, which must be there) and opens every parent directory of the
folder and of its binaries for reading by others. It leaves Postgres running when the process ends;
this script stops it, and leaves the folder.
"""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path

from pixeltable_run import Child, Event, Memory, Run, Watcher

SEED_ROWS = 20  # what an edit finds in the table
EDITS_MAX = 5
PAUSE_SECONDS = 0.3
LOOK_SECONDS = 0.02


def batch(run: Run) -> dict[str, object]:
    """From an import to the last cell."""
    asked = run.asked
    source = run.words("w", asked.rows)
    started = time.monotonic()
    child, ready = run.load(source)
    start_seconds = time.monotonic() - started
    watcher = Watcher(run.home)
    calls_before = run.calls() if asked.provider_url else 0
    memory = Memory(child.process.pid, int(ready["postmaster"]))
    loaded = child.import_all(asked.timeout_seconds)
    peak = memory.stop()
    seen_at = watcher.stop()
    calls = run.calls() - calls_before if asked.provider_url else 0
    return {
        **figures_of(loaded, asked),
        "start_seconds": round(start_seconds, 3),
        "peak_resident_mib": peak,
        "first_visible_cell_seconds": round(seen_at - loaded["begun"], 3),
        **(provider_figures(loaded, calls) if asked.provider_url else {}),
    }


def figures_of(loaded: Event, asked: argparse.Namespace) -> dict[str, object]:
    """What one import tells."""
    cells = asked.rows * (1 if asked.provider_url else 2)
    seconds = loaded["insert_seconds"] + loaded["read_seconds"]
    client, postgres = loaded["client_cpu_seconds"], loaded["postgres_cpu_seconds"]
    return {
        "cells": cells,
        "seconds": round(seconds, 3),
        "insert_seconds": round(loaded["insert_seconds"], 3),
        "cells_per_second": round(cells / seconds, 1),
        "cpu_seconds": round(client + postgres, 2),
        "cpu_seconds_client": round(client, 2),
        "cpu_seconds_postgres": round(postgres, 2),
        "cpu_seconds_per_1000_cells": round((client + postgres) / cells * 1000, 4),
        **{name: loaded[name] for name in ("rows_missing", "rows_wrong", "rows_twice")},
        "all_right": not (loaded["rows_missing"] or loaded["rows_wrong"] or loaded["rows_twice"]),
    }


def provider_figures(loaded: Event, calls: int) -> dict[str, object]:
    """What a provider adds to the figures."""
    return {"calls": calls, "calls_started_at_once_peak": loaded["calls_waiting_peak"]}


def edit(run: Run) -> dict[str, object]:
    """Edits of other rows of the table, before a big import and while it runs."""
    asked = run.asked
    seeding, _ = run.load(run.words("seed", SEED_ROWS))
    seeding.import_all(asked.timeout_seconds)
    editor, _ = run.start("edit")
    idle = list(edits(editor, asked, 0))
    child, _ = run.load(run.words("w", asked.rows))
    calls_before = run.calls() if asked.provider_url else 0
    child.say()
    # An edit is asked for when the import holds the table: after its first call, or a pause.
    while asked.provider_url and run.calls() == calls_before:
        time.sleep(LOOK_SECONDS)
    time.sleep(PAUSE_SECONDS)
    inserted: list[Event] = []
    waiter = threading.Thread(
        target=lambda: inserted.append(child.expect("inserted", asked.timeout_seconds)), daemon=True
    )
    waiter.start()
    asked_for = list(edits(editor, asked, EDITS_MAX, waiter))
    waiter.join()
    loaded = child.expect("loaded", asked.timeout_seconds)
    busy = [item for item in asked_for if began_before(item, inserted[0]["at"])]
    waited = [item for item in busy if item.get("ended", 0.0) >= inserted[0]["at"]]
    return {
        "edits_idle": summary(idle),
        "edits_while_importing": summary(busy),
        "edits_that_waited_for_the_whole_import": len(waited),
        "import": figures_of(loaded, asked),
    }


def began_before(edited: Event, at: float) -> bool:
    """Whether an edit was asked for before a moment; one that timed out was."""
    return "ended" not in edited or edited["ended"] - edited["seconds"] < at


def edits(
    editor: Child, asked: argparse.Namespace, first: int, running: threading.Thread | None = None
) -> Iterator[Event]:
    """Up to five edits, one after the other, as long as the import runs; none after a timeout."""
    for number in range(first, first + EDITS_MAX):
        if running is not None and not running.is_alive():
            return
        editor.say(f"seed{number} edited{number}")
        try:
            yield editor.expect("edited", asked.edit_timeout_seconds)
        except TimeoutError:
            yield {"timed_out_after_seconds": asked.edit_timeout_seconds}
            return
        time.sleep(PAUSE_SECONDS)


def summary(found: Sequence[Event]) -> dict[str, object]:
    """The latencies of some edits; one that timed out counts as long as it was waited for."""
    seconds = sorted(item.get("seconds", item.get("timed_out_after_seconds")) for item in found)
    return {
        "edits": len(found),
        "timed_out": sum("timed_out_after_seconds" in item for item in found),
        "all_right": all(item.get("right", False) for item in found),
        "p50_ms": round(statistics.median(seconds) * 1000, 1) if seconds else None,
        "worst_ms": round(seconds[-1] * 1000, 1) if seconds else None,
    }


def crash(run: Run) -> dict[str, object]:
    """Kill the import at half of its calls, run it again, and count what was paid twice."""
    asked = run.asked
    source = run.words("w", asked.rows)
    child, _ = run.load(source)
    before = run.calls()
    child.say()
    deadline = time.monotonic() + asked.timeout_seconds
    while run.calls() - before < asked.rows / 2:
        if time.monotonic() > deadline:
            raise TimeoutError("half of the calls")
        time.sleep(LOOK_SECONDS)
    child.kill()
    at_kill = run.calls() - before
    started = time.monotonic()
    second, ready = run.load(source, "--resume")
    opened = time.monotonic() - started
    loaded = second.import_all(asked.timeout_seconds)
    calls = run.calls() - before
    return {
        "calls_at_kill": at_kill,
        "rows_found_after_kill": ready["rows"],
        "reopen_seconds": round(opened, 3),
        "cleaned_by_hand": "nothing",  # the second process had only what a user would run again
        "calls": calls,
        "spend_passes": round(calls / asked.rows, 3),
        "cells_lost": loaded["rows_missing"] + loaded["rows_wrong"],
        "rows_twice": loaded["rows_twice"],
    }


MODES = {"batch": batch, "edit": edit, "provider": batch, "crash": crash}


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Measure Pixeltable.")
    parser.add_argument("mode", choices=tuple(MODES))
    parser.add_argument("--folder", type=Path, required=True, help="a folder that is not there yet")
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--functions", choices=("native", "udf", "batched"), default="native")
    parser.add_argument("--provider-url", default="")
    parser.add_argument("--answer", default="", help="the right answer, with {input} for the word")
    parser.add_argument("--connections", type=int, default=500)
    parser.add_argument("--chunk-rows", type=int, default=0, help="rows of one insert; 0 for all")
    parser.add_argument("--columns-last", action="store_true", help="declare them after the import")
    parser.add_argument("--timeout-seconds", type=float, default=600.0)
    parser.add_argument("--edit-timeout-seconds", type=float, default=60.0)
    asked = parser.parse_args(given)
    if asked.mode in {"provider", "crash"} and not asked.provider_url:
        parser.error(f"{asked.mode} needs --provider-url")
    return asked


def settings_of(asked: argparse.Namespace) -> dict[str, object]:
    """What was asked for, as the report shows it."""
    provider = {"connections": asked.connections, "answers": "async function, aiohttp"}
    return {
        "mode": asked.mode,
        "rows": asked.rows,
        **(provider if asked.provider_url else {"functions": asked.functions}),
        "chunk_rows": asked.chunk_rows,
        "columns": "after the import" if asked.columns_last else "before the import",
        "postgres": "embedded, as shipped",
    }


def main() -> None:
    """Measure, print, and stop everything that was started."""
    asked = arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # what was started is stopped
    run = Run(asked)
    try:
        figures = MODES[asked.mode](run)
    finally:
        run.stop()
    head = {"name": "pixeltable", "version": version("pixeltable"), "settings": settings_of(asked)}
    sys.stdout.write(json.dumps({**head, **figures}) + "\n")


if __name__ == "__main__":
    main()
