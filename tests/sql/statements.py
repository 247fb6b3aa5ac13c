"""Statements as Postgres itself prepares them, and their plans."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from importlib import resources
from typing import Any

from psycopg import sql

from everfill.infra.postgres import Connection, Query, load_queries

_PARAMETER = re.compile(r"%\((\w+)\)[sbt]")


def sql_files() -> Iterator[tuple[str, str]]:
    """Every file of queries in the package: its package and its name."""
    folders = [("everfill", resources.files("everfill"))]
    while folders:
        package, folder = folders.pop()
        for item in folder.iterdir():
            if item.is_dir() and item.name not in {"__pycache__", "migrations"}:
                folders.append((f"{package}.{item.name}", item))
            elif item.name.endswith(".sql") and "-- name: " in item.read_text(encoding="utf-8"):
                yield package, item.name


def all_queries() -> dict[str, Query]:
    """Every query of the package by file and name."""
    return {
        f"{name}:{query}": text
        for package, name in sorted(sql_files())
        for query, text in load_queries(package, name).items()
    }


def numbered(query: Query) -> tuple[str, list[str]]:
    """A query with `$1` for its parameters, and their names in that order."""
    names: list[str] = []

    def place(match: re.Match[str]) -> str:
        name = match.group(1)
        if name not in names:
            names.append(name)
        return f"${names.index(name) + 1}"

    return _PARAMETER.sub(place, query.decode()).replace("%%", "%"), names


async def explain(
    connection: Connection, query: Query, params: Mapping[str, Any], *, options: str = ""
) -> dict[str, Any]:
    """The plan that the session's plan_cache_mode gives a query."""
    text, names = numbered(query)
    await connection.execute("deallocate all")
    await connection.execute(f"prepare explained as {text}".encode(), prepare=False)
    arguments = sql.SQL(", ").join(sql.Literal(params[name]) for name in names)
    call = sql.SQL("({})").format(arguments) if names else sql.SQL("")
    statement = sql.SQL("explain (format json{}) execute explained").format(sql.SQL(options)) + call
    cursor = await connection.execute(statement, prepare=False)
    row = await cursor.fetchone()
    assert row
    found = row[0] if isinstance(row[0], list) else json.loads(row[0])
    return found[0]["Plan"]


def nodes(plan: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Every node of a plan."""
    yield plan
    for child in plan.get("Plans", ()):
        yield from nodes(child)


def scanned(plan: Mapping[str, Any]) -> set[str]:
    """Tables that a plan reads from end to end."""
    return {node["Relation Name"] for node in nodes(plan) if node["Node Type"] == "Seq Scan"}


def indexes(plan: Mapping[str, Any]) -> set[str]:
    """Indexes that a plan uses."""
    return {node["Index Name"] for node in nodes(plan) if "Index Name" in node}
