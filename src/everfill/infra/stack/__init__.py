"""The embedded servers: Postgres, Temporal and Valkey from wheels, under one data directory.

A supervisor process owns them; commands join it and it leaves when the last has gone. Any of the
three gives way to an outside server that the settings name. Nothing here knows what is stored.

`doctor.inspect_stack` looks at all of it; it is not named here, because it imports the clients of
three servers, and every command would start more slowly for it.
"""

from __future__ import annotations

from everfill.infra.stack.client import Endpoints, open_stack

__all__ = ["Endpoints", "open_stack"]
