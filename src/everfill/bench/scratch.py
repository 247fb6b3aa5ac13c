"""An installation that lives as long as a benchmark."""

from __future__ import annotations

import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from everfill.kernel.config import Settings, load_settings

__all__ = ["scratch_settings"]


@contextmanager
def scratch_settings(**flags: object) -> Generator[Settings, None, None]:
    """Settings with an empty data directory, removed with the context; servers as configured."""
    with tempfile.TemporaryDirectory(prefix="everfill-bench-", ignore_cleanup_errors=True) as name:
        yield load_settings({"data_dir": Path(name), **flags})
