"""Benchmarks that anyone can run: `everfill bench`.

Each subject is a folder or a module: it measures one thing and returns a frozen report. What every
benchmark shares (the machine, noise, JSON, charts) is in `report` and `charts`. Nothing outside the
command line may import this room.
"""

from __future__ import annotations

__all__: list[str] = []
