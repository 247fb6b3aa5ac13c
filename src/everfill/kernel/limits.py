"""Every bound of the system, with its reason. Nothing is unbounded.

Sizes are in bytes, times in seconds, counts in the thing named. What an operator may want to set is
in `config`; what is here is a matter of correctness or of measured cost.
"""

from __future__ import annotations

from typing import Final

__all__ = [
    "BAD_ROWS_KEPT_MAX",
    "BLOB_THRESHOLD_BYTES",
    "BULK_SHARE_OF_CAP",
    "CELL_BYTES_MAX",
    "CHOICES_MAX",
    "COLLECTION_CAP_CELLS",
    "COLUMNS_MAX",
    "DIRTY_ROUNDS_MAX",
    "DISPATCH_CHUNK_CELLS",
    "ERROR_MESSAGE_CHARS_MAX",
    "EXTRACT_BYTES_MAX",
    "EXTRACT_CHARS_MAX",
    "EXTRACT_MEMORY_BYTES",
    "EXTRACT_SECONDS",
    "EXTRACT_UNPACKED_BYTES_MAX",
    "FUTURE_SECONDS_MAX",
    "IMMEDIATE_CHARS_MAX",
    "IMMEDIATE_CHUNK_CELLS",
    "IMMEDIATE_SECONDS_MAX",
    "IMPORT_CHUNK_ROWS",
    "INTERACTIVE_CELLS_MAX",
    "LANES_PER_CLAIM",
    "LEASE_SECONDS_MAX",
    "LOST_TRIES_MAX",
    "MODEL_ANSWER_BYTES_MAX",
    "NAMESPACE_CAP_CELLS",
    "NAME_CHARS_MAX",
    "RETRY_BASE_SECONDS",
    "RETRY_CAP_SECONDS",
    "RETRY_SECONDS_MAX",
    "RUN_ROWS_MAX",
    "TEMPLATE_CHARS_MAX",
    "TRIES_MAX",
    "TYPE_SCAN_BYTES_MAX",
    "VECTOR_DIMENSIONS_MAX",
    "XLSX_CELLS_MAX",
    "XLSX_UNPACKED_BYTES_MAX",
]

NAME_CHARS_MAX: Final = 200
"""A name must fit a column head, a SQL view and a message."""

COLUMNS_MAX: Final = 1_000
"""Half of what one SQL view can hold (1,600), and the DAG is rebuilt whole at each change."""

CHOICES_MAX: Final = 1_000
"""A list of choices goes into every prompt of its column."""

TEMPLATE_CHARS_MAX: Final = 100_000
"""A prompt longer than this is a document, and belongs in a cell."""

CELL_BYTES_MAX: Final = 256 * 1024 * 1024
"""One cell is read whole into memory at import and export."""

BLOB_THRESHOLD_BYTES: Final = 1_000_000
"""Larger values live in the blob store, so that reading a page of the table stays cheap."""

IMPORT_CHUNK_ROWS: Final = 2_000
"""Rows held in memory while a file streams in; also one COPY, one commit."""

DISPATCH_CHUNK_CELLS: Final = 5_000
"""Cells signalled in one transaction: about 50 ms under the collection's lock."""

IMMEDIATE_CHUNK_CELLS: Final = 2_000
"""The same where some are filled at once: with their computing about 50 ms as well."""

IMMEDIATE_CHARS_MAX: Final = 16_000_000
"""Rendered texts of one column and chunk that are held at once; the queue does the rest."""

IMMEDIATE_SECONDS_MAX: Final = 2.0
"""What a batch of a pure kind may wait under the collection's lock: one that does is none."""

INTERACTIVE_CELLS_MAX: Final = 1_000
"""Cells one request may put into the interactive lane; more is a bulk run."""

RUN_ROWS_MAX: Final = 100_000
"""Rows that a run may name one by one; more is a range."""

COLLECTION_CAP_CELLS: Final = 2_000
"""Default of cells in flight for one collection: one collection cannot take every worker."""

MODEL_ANSWER_BYTES_MAX: Final = 32 * 1024 * 1024
"""An answer is in memory whole, a slot each; images come as base64."""

NAMESPACE_CAP_CELLS: Final = 10_000
"""Default of cells in flight for one namespace."""

DIRTY_ROUNDS_MAX: Final = 3
"""Calls of a cell in one burst of signals; the last one's value is kept, as *outdated*."""

TRIES_MAX: Final = 6
"""Calls of one cell that may fail in passing; with the delays below about two minutes."""

LOST_TRIES_MAX: Final = 20
"""Workers that may die while they hold one cell: beyond, the cell itself is the suspect."""

BULK_SHARE_OF_CAP: Final = 0.9
"""The part of a cap that bulk work may fill; the rest is kept for interactive edits."""

LANES_PER_CLAIM: Final = 8
"""Lanes one claim looks at, in each class: bounds its cost whatever the number of lanes."""

LEASE_SECONDS_MAX: Final = 3_600.0
"""A worker that died is missed at most this long."""

FUTURE_SECONDS_MAX: Final = 60.0
"""Clocks are set back by less every day; what happened further ahead than this happened while the
clock was wrong, and what waits for it waits no longer."""

RETRY_BASE_SECONDS: Final = 1.0
"""First delay after a transient failure; it doubles, with full jitter."""

RETRY_CAP_SECONDS: Final = 300.0
"""Longest delay between two tries, whatever the provider asks for."""

RETRY_SECONDS_MAX: Final = 2 * RETRY_CAP_SECONDS
"""Beyond the longest delay with its jitter: a later retry was written while the clock was wrong."""

ERROR_MESSAGE_CHARS_MAX: Final = 500
"""A cell keeps the provider's own words, not its whole page."""

EXTRACT_BYTES_MAX: Final = 128 * 1024 * 1024
"""A file sent to a reader process is in memory twice while it travels."""

EXTRACT_CHARS_MAX: Final = 20_000_000
"""Text of some 10,000 pages; more is a database, and belongs in rows."""

EXTRACT_UNPACKED_BYTES_MAX: Final = 512 * 1024 * 1024
"""What a zipped document may unpack to: real ones stay far below, bombs far above."""

EXTRACT_MEMORY_BYTES: Final = 1_536 * 1024 * 1024
"""Address space of one reader process; the libraries alone map about 300 MB."""

EXTRACT_SECONDS: Final = 60.0
"""Wall-clock time of one file; a healthy one of 1,000 pages takes about 10 s."""

BAD_ROWS_KEPT_MAX: Final = 1_000
"""Rows an import names one by one; beyond that a person needs the count, not the list."""

TYPE_SCAN_BYTES_MAX: Final = 200_000_000
"""Smaller files are read once before the import, so that types and ragged rows are known."""

VECTOR_DIMENSIONS_MAX: Final = 16_000
"""What pgvector can hold in one value."""

XLSX_UNPACKED_BYTES_MAX: Final = 1_000_000_000
"""A spreadsheet is a zip file: one that unpacks to more than this is refused as a bomb."""

XLSX_CELLS_MAX: Final = 50_000_000
"""The Excel reader holds the whole rectangle of a sheet in memory, empty cells included."""
