"""What the statements of `immediate.sql` do in the simulated database."""

from __future__ import annotations

import psycopg
from sim_postgres import Params, Rows, statement
from sim_queue_sql import REFUSED
from sim_rows import CellRow, Key, Transaction

from everfill.autofill import immediate

FILL = immediate._SQL


@statement(FILL, "known_rows")
def known_rows(tx: Transaction, p: Params) -> Rows:
    keys = [Key(p["collection_id"], row, column) for row in p["rows"] for column in p["columns"]]
    found = {key.row_id for key in keys if tx.find("queue", key) or tx.find("cells", key)}
    return [(row,) for row in sorted(found)]


@statement(FILL, "copy_answers_in")
def copy_answers_in(tx: Transaction, p: Params) -> Rows:
    for line in p["text"].splitlines():
        row, collection, column, value, status, version, _at, digest = line.split("\t")
        if REFUSED in value:
            raise psycopg.DataError("a value that the database cannot hold")
        key = Key(int(collection), int(row), int(column))
        if tx.find("cells", key):
            raise psycopg.errors.UniqueViolation(f"{key} is stored already")
        if not tx.find("rows", (key.collection_id, key.row_id)):
            raise psycopg.errors.ForeignKeyViolation(f"{key} has no row")
        kept = CellRow(
            computed_value=value.replace("\\\\", "\\"),
            status=status,
            definition_version=int(version),
            input_hash=bytes.fromhex(digest.removeprefix("\\\\x")),
        )
        tx.put("cells", key, kept)
        tx.told.append(("filled", key))
    return []
