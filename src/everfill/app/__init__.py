"""The composition root: the only place that wires the rooms together.

`wiring` opens an `App`; `cell_process` and `setup_process` are the two worker processes. They are
apart because a cell worker never imports Temporal. Nothing here decides anything.
"""

from everfill.app.wiring import App, open_app

__all__ = ["App", "open_app"]
