"""Everfill: tables that keep themselves filled.

Every input becomes a row, and any column can be computed from other columns. The package is a
stack of rooms, lowest first: kernel, infra, tables, compute, autofill, then the edges (api, cli).
A room imports only rooms below it; import-linter checks that.
"""

__version__ = "0.1.0"
