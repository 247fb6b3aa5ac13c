from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
sys.path.insert(0, str(ROOT / "tools"))

from make_schema import TARGET, dump  # noqa: E402 - the tool is no package


def test_the_migrations_make_the_committed_schema(database_url: str) -> None:
    assert dump(database_url) == TARGET.read_text(encoding="utf-8"), (
        "run `python tools/make_schema.py`"
    )
