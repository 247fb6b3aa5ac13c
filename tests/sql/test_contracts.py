"""Every statement fits the migrated database, and words mean the same in Python and in SQL."""

from __future__ import annotations

from enum import StrEnum

import psycopg
import pytest
from statements import all_queries, numbered

from everfill.autofill.dispatch import Only
from everfill.autofill.machine import State
from everfill.autofill.queue import OutcomeKind
from everfill.compute.protocol import CostClass
from everfill.infra.postgres import Pool
from everfill.tables.cells import CellStatus

_DERIVED = {CellStatus.QUEUED, CellStatus.COMPUTING}


async def test_every_statement_prepares_against_the_migrated_database(pool: Pool) -> None:
    refused: dict[str, str] = {}
    async with pool.connection() as connection:
        for name, query in all_queries().items():
            text, _ = numbered(query)
            if any(line.startswith("copy ") for line in text.splitlines()):
                continue
            try:
                await connection.execute(f"prepare tried as {text}".encode(), prepare=False)
                await connection.execute("deallocate tried")
            except psycopg.Error as error:
                refused[name] = str(error)
    assert refused == {}


async def test_every_copy_statement_takes_rows(pool: Pool) -> None:
    copies = {name: query for name, query in all_queries().items() if b"copy " in query}
    assert len(copies) >= 2
    async with pool.connection() as connection:
        for query in copies.values():
            async with connection.cursor().copy(query):
                pass


async def _labels(pool: Pool, name: str) -> list[str]:
    async with pool.connection() as connection:
        cursor = await connection.execute(
            "select enumlabel from pg_enum join pg_type t on t.oid = enumtypid"
            " where t.typname = %s order by enumsortorder",
            [name],
        )
        return [row[0] for row in await cursor.fetchall()]


async def test_stored_statuses_are_those_of_a_cell_without_the_derived_ones(pool: Pool) -> None:
    assert await _labels(pool, "cell_status") == [s for s in CellStatus if s not in _DERIVED]


async def test_cost_classes_are_the_same_words_on_both_sides(pool: Pool) -> None:
    assert await _labels(pool, "cost_class") == list(CostClass)


@pytest.mark.parametrize(("words", "others"), [(Only, {"unfinished"}), (OutcomeKind, set[str]())])
async def test_words_that_become_statuses_are_statuses(
    pool: Pool, words: type[StrEnum], others: set[str]
) -> None:
    known = {*await _labels(pool, "cell_status"), *others, "unchanged", "retry"}
    assert {word.value for word in words} <= known


def test_the_queues_words_for_an_unsettled_cell_are_the_machines() -> None:
    statements = all_queries()
    for name in ("cells.sql:read_entries", "progress.sql:count_entries"):
        for state in (State.RETRYING, State.BLOCKED, State.COMPUTING, State.QUEUED):
            assert f"'{state}'".encode() in statements[name]


@pytest.mark.parametrize(
    "statement",
    [
        # an entry cannot both have a place and wait for a retry
        (
            "insert into queue (row_id, collection_id, column_id, lane_id, seq, retry_at)"
            " values (1, 1, 1, 1, 1, now())"
        ),
        # a claim without cells does not exist
        (
            "insert into claims (lane_id, collection_id, namespace_id, seq_from, seq_to, n,"
            " worker, lease_until) values (1, 1, 1, 1, 1, 0, 'w', now())"
        ),
        "insert into namespaces (name, cap_cells) values ('n', 0)",
        "insert into namespaces (name, cap_cells, weight) values ('n', 1, 0)",
        "insert into namespaces (name, cap_cells) values ('', 1)",
    ],
)
async def test_the_database_refuses_what_must_not_be(pool: Pool, statement: str) -> None:
    async with pool.connection() as connection:
        with pytest.raises(psycopg.errors.CheckViolation):
            await connection.execute(statement.encode())


async def test_two_entries_cannot_share_a_number_of_a_lane(pool: Pool) -> None:
    insert = b"insert into queue (row_id, collection_id, column_id, lane_id, seq) values "
    async with pool.connection() as connection:
        await connection.execute(insert + b"(1, 1, 1, 1, 5), (2, 1, 1, 2, 5)")
        with pytest.raises(psycopg.errors.UniqueViolation):
            await connection.execute(insert + b"(3, 1, 1, 1, 5)")


async def test_a_column_is_either_an_input_or_wholly_defined(pool: Pool) -> None:
    async with pool.connection() as connection:
        await connection.execute("insert into namespaces (name, cap_cells) values ('n', 1)")
        await connection.execute(
            "insert into collections (namespace_id, name, cap_cells) values (1, 'c', 1)"
        )
        for columns, values in (
            ("kind", "'template'"),
            ("kind, template", "'template', ''"),
            ("cost_class", "'local'"),
            ("schedule", "'cron'"),
            ("cron", "'* * * * *'"),
            ("schedule", "'sometimes'"),
        ):
            statement = (  # the texts stand above
                f"insert into columns (collection_id, name, position, type, {columns})"  # noqa: S608 - as above
                f" values (1, 'a', 1, '{{}}', {values})"
            )
            with pytest.raises(psycopg.errors.CheckViolation):
                await connection.execute(statement.encode())
