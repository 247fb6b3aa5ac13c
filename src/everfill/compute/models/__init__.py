"""Calls to model providers: connections, wire formats, what goes wrong, and what it costs.

`connections` says which endpoint a model's name means; a `Dialect` (`chat`, `anthropic`, `google`)
writes the request and reads the reply; `exchange` is the one HTTP call; `failures` reads errors and
`prices` the bill. Nothing here knows of cells.
"""

__all__: list[str] = []
