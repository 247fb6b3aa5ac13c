"""Queries by name, from the `.sql` file beside the module that uses them.

A query starts at `-- name: claim` and ends at the next one. The comment under the name states its
intent, the locks it takes and the index it expects.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import resources
from typing import Final, NewType

__all__ = ["Query", "load_queries"]

Query = NewType("Query", bytes)
"""A statement as psycopg takes it, with named parameters."""

_NAME: Final = re.compile(r"^-- name: ([a-z_]+)\s*$", re.MULTILINE)


def load_queries(package: str, file_name: str) -> Mapping[str, Query]:
    """Read the queries of one file of a package.

    Raises:
        ValueError: A name stands twice, or text stands before the first name.
    """
    text = resources.files(package).joinpath(file_name).read_text(encoding="utf-8")
    head, *parts = _NAME.split(text)
    if any(line and not line.startswith("--") for line in head.splitlines()):
        message = f"{package}/{file_name}: text before the first `-- name:`"
        raise ValueError(message)
    names = parts[::2]
    if len(set(names)) < len(names):
        message = f"{package}/{file_name}: a name stands twice"
        raise ValueError(message)
    return {
        name: Query(body.strip().removesuffix(";").encode())
        for name, body in zip(names, parts[1::2], strict=True)
    }
