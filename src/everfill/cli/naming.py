"""How a command names a collection."""

from __future__ import annotations

from typing import Annotated

import typer

from everfill.app import App
from everfill.cli.console import (
    split_collection,
)
from everfill.tables.definitions import Definitions
from everfill.tables.schema import Collection, Schema

__all__ = ["CollectionName", "find_collection"]


CollectionName = Annotated[
    str, typer.Argument(metavar="COLLECTION", help="Its name, or namespace/name.")
]


async def find_collection(app: App, text: str) -> tuple[Collection, Schema]:
    """A collection and its columns; raises NotFoundError `collection_unknown`."""
    namespace, name = split_collection(text)
    async with app.pool.connection() as connection:
        definitions = Definitions(connection)
        collection = await definitions.get_collection(namespace, name)
        return collection, await definitions.load_schema(collection.collection_id)
