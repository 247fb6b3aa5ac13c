"""Postgres: the connection pool, the typed loader of `.sql` files, and the migrations."""

from everfill.infra.postgres.arrays import array_literal
from everfill.infra.postgres.migrate import migrate
from everfill.infra.postgres.outages import OUTAGES, pass_cancellation, persist, unavailable
from everfill.infra.postgres.pool import Connection, Pool, open_pool, pipelined
from everfill.infra.postgres.queries import Query, load_queries

__all__ = [
    "OUTAGES",
    "Connection",
    "Pool",
    "Query",
    "array_literal",
    "load_queries",
    "migrate",
    "open_pool",
    "pass_cancellation",
    "persist",
    "pipelined",
    "unavailable",
]
