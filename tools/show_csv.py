"""Print some columns of a CSV file as a table: show_csv.py FILE [--rows N] COLUMN..."""

from __future__ import annotations

import argparse
import csv
import json
import sys
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table

WIDTH_WITHOUT_SCREEN = 120
FRAME, GAP = 2, 3


def main() -> None:
    """Read the file and print it, long cells cut at the width of the screen."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--rows", type=int, default=10)
    parser.add_argument("columns", nargs="+")
    args = parser.parse_args()
    with args.file.open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    shown = [[_shown(row[column]) for column in args.columns] for row in rows[: args.rows]]
    width = None if sys.stdout.isatty() else WIDTH_WITHOUT_SCREEN
    console = Console(markup=False, highlight=False, width=width)
    table = Table(box=SIMPLE_HEAD, header_style="bold")
    for column, limit in zip(args.columns, _widths(args.columns, shown, console), strict=True):
        table.add_column(column, no_wrap=True, overflow="ellipsis", max_width=limit)
    for cells in shown:
        table.add_row(*cells)
    console.print(table)
    if len(rows) > args.rows:
        console.print(f"  … {len(rows) - args.rows} more rows")


def _widths(columns: list[str], rows: list[list[str]], console: Console) -> list[int]:
    """As wide as the cells; where the screen is too narrow, the widest give way first."""
    widths = [max(map(cell_len, texts)) for texts in zip(columns, *rows, strict=True)]
    room = max(console.width - FRAME - GAP * len(columns), len(columns))
    while sum(widths) > room:
        widths[widths.index(max(widths))] -= 1
    return widths


def _shown(text: str) -> str:
    """A list joined by commas, a file by its name, the rest on one line."""
    try:
        value = json.loads(text)
    except json.JSONDecodeError:
        return " ".join(text.split())
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return str(value.get("name", text)) if isinstance(value, dict) else text


if __name__ == "__main__":
    main()
