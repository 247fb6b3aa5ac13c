"""What the statements about columns, rows and cells do in the simulated database."""

from __future__ import annotations

import json
from dataclasses import replace

from sim_postgres import Params, Rows, statement
from sim_queue_sql import _keys
from sim_rows import CellRow, Key, Transaction

from everfill.tables import cells as cells_module
from everfill.tables import definitions as definitions_module

CELLS = cells_module._SQL
DEFINITIONS = definitions_module._SQL
BRING = b"a row with its values, as an import brings it"
SHOWN = {"ready", "outdated"}


# -- definitions ----------------------------------------------------------------------------------


@statement(DEFINITIONS, "schema_version")
def schema_version(tx: Transaction, p: Params) -> Rows:
    collection = tx.find("collections", p["collection_id"])
    return [(collection.schema_version,)] if collection else []


@statement(DEFINITIONS, "lock_schema", lambda _tx, p: [("schema", p["collection_id"])])
def lock_schema(tx: Transaction, p: Params) -> Rows:
    return schema_version(tx, p)


@statement(DEFINITIONS, "raise_schema_version", lambda _tx, p: [("schema", p["collection_id"])])
def raise_schema_version(tx: Transaction, p: Params) -> Rows:
    collection = tx.find("collections", p["collection_id"])
    raised = replace(collection, schema_version=collection.schema_version + 1)
    tx.put("collections", p["collection_id"], raised)
    return []


@statement(DEFINITIONS, "columns")
def columns(tx: Transaction, p: Params) -> Rows:
    found = [(key, c) for key, c in tx.scan("columns") if c.collection_id == p["collection_id"]]
    found.sort(key=lambda item: (item[1].position, item[0]))
    return [
        (
            *(key, c.name, c.position, c.type, c.kind, c.template, {}, c.cost_class),
            *(c.accepts_missing, c.schedule, c.cron, c.definition_version),
        )
        for key, c in found
    ]


@statement(DEFINITIONS, "redefine_column", lambda _tx, p: [("column", p["column_id"])])
def redefine_column(tx: Transaction, p: Params) -> Rows:
    column = tx.find("columns", p["column_id"])
    fresh = replace(
        column,
        type=json.loads(p["type"]),
        kind=p["kind"],
        template=p["template"],
        cost_class=p["cost_class"],
        accepts_missing=p["accepts_missing"],
        schedule=p["schedule"],
        cron=p["cron"],
        cron_ran_at=tx.started_at if column.cron != p["cron"] else column.cron_ran_at,
        definition_version=column.definition_version + p["raise"],
    )
    tx.put("columns", p["column_id"], fresh)
    return []


@statement(DEFINITIONS, "set_references")
def set_references(tx: Transaction, p: Params) -> Rows:
    tx.put("references", p["column_id"], tuple(p["upstreams"]))
    return []


@statement(DEFINITIONS, "record_change")
def record_change(_tx: Transaction, _p: Params) -> Rows:
    return []


# -- rows and cells -------------------------------------------------------------------------------


@statement(CELLS, "existing_rows")
def existing_rows(tx: Transaction, p: Params) -> Rows:
    return [(row,) for row in p["rows"] if tx.find("rows", (p["collection_id"], row))]


@statement(CELLS, "last_row")
def last_row(tx: Transaction, p: Params) -> Rows:
    found = [row for (collection, row), _ in tx.scan("rows") if collection == p["collection_id"]]
    return [(max(found, default=0),)]


@statement({"bring_row": BRING}, "bring_row")
def bring_row(tx: Transaction, p: Params) -> Rows:
    tx.put("rows", (p["collection_id"], p["row"]), True)  # noqa: FBT003 - a row has no columns
    for column, value in p["values"].items():
        key = Key(p["collection_id"], p["row"], column)
        tx.put("cells", key, CellRow(user_value=f'"{value}"', status="ready"))
    return []


@statement(CELLS, "delete_rows")
def delete_rows(tx: Transaction, p: Params) -> Rows:
    gone = {(p["collection_id"], row) for row in p["rows"]}
    for table in ("queue", "cells"):
        for key, _ in tx.scan(table):
            if (key.collection_id, key.row_id) in gone:
                tx.drop(table, key)
    deleted = [key for key in sorted(gone) if tx.find("rows", key)]
    for key in deleted:
        tx.drop("rows", key)
    return [(row,) for _, row in deleted]


@statement(CELLS, "set_values")
def set_values(tx: Transaction, p: Params) -> Rows:
    changed: Rows = []
    for key, value in zip(_keys(p), p["values"], strict=True):
        kept: CellRow = tx.find("cells", key) or CellRow()
        shown = kept.user_value
        if shown is None and kept.status in SHOWN:
            shown = kept.computed_value
        if shown != value:
            changed.append((key.row_id, key.column_id))
        status = kept.status if p["computed"] else "ready"
        tx.put("cells", key, replace(kept, user_value=value, status=status))
    return changed


@statement(CELLS, "clear_values")
def clear_values(tx: Transaction, p: Params) -> Rows:
    cleared: Rows = []
    for key in _keys(p):
        kept: CellRow | None = tx.find("cells", key)
        if kept and kept.user_value is not None:
            computed = tx.find("columns", key.column_id).kind is not None
            status = kept.status if computed else "empty"
            tx.put("cells", key, replace(kept, user_value=None, status=status))
            cleared.append((key.row_id, key.column_id))
    return cleared


@statement(CELLS, "set_locked")
def set_locked(tx: Transaction, p: Params) -> Rows:
    for key in _keys(p):
        kept = tx.find("cells", key) or CellRow()
        tx.put("cells", key, replace(kept, locked=p["locked"]))
    return []


@statement(CELLS, "mark_outdated")
def mark_outdated(tx: Transaction, p: Params) -> Rows:
    for key in _keys(p):
        kept: CellRow | None = tx.find("cells", key)
        if kept and kept.status in {"ready", "not_found"}:
            tx.put("cells", key, replace(kept, status="outdated", reason="input_changed"))
    return []


@statement(CELLS, "read_inputs")
def read_inputs(tx: Transaction, p: Params) -> Rows:
    found: Rows = []
    for row in p["rows"]:
        for column in p["columns"]:
            kept: CellRow | None = tx.find("cells", Key(p["collection_id"], row, column))
            if kept:
                value = kept.computed_value if kept.user_value is None else kept.user_value
                pinned = (kept.user_value is not None, kept.locked)
                computed = kept.computed_value is not None
                found.append((row, column, value, kept.status, *pinned, kept.input_hash, computed))
    return found
