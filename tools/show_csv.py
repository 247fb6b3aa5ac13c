"""Print some columns of a CSV file as a table: show_csv.py FILE [--rows N] COLUMN..."""

from __future__ import annotations

import argparse
import csv
import json
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table


def main() -> None:
    """Read the file and print it, long cells cut at the width of the screen."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--rows", type=int, default=10)
    parser.add_argument("columns", nargs="+")
    args = parser.parse_args()
    with args.file.open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    table = Table(box=SIMPLE_HEAD, header_style="bold")
    for column in args.columns:
        table.add_column(column, no_wrap=True, overflow="ellipsis")
    for row in rows[: args.rows]:
        table.add_row(*(_shown(row[column]) for column in args.columns))
    console = Console(markup=False, highlight=False)
    console.print(table)
    if len(rows) > args.rows:
        console.print(f"  … {len(rows) - args.rows} more rows")


def _shown(text: str) -> str:
    """A list joined by commas, a file by its name, the rest on one line."""
    if text.startswith(("[", "{")):
        value = json.loads(text)
        return ", ".join(map(str, value)) if isinstance(value, list) else str(value.get("name"))
    return " ".join(text.split())


if __name__ == "__main__":
    main()
