"""The Pixeltable subject with Pixeltable, from `requirements/peers-pixeltable.txt`.

PIXELTABLE_PYTHON=/path/to/python pytest -m slow tests/integration/test_pixeltable_runs.py
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import everfill.bench.peers

SCRIPT = Path(everfill.bench.peers.__file__).with_name("pixeltable_fill.py")
PROVIDER = Path(__file__).parents[1] / "provider_of_words.py"
PYTHON = os.environ.get("PIXELTABLE_PYTHON", "")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PYTHON, reason="PIXELTABLE_PYTHON names no Python with Pixeltable"),
]


@pytest.fixture
def provider() -> Iterator[str]:
    command = [sys.executable, str(PROVIDER), "--latency-ms", "50"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.terminate()


def measured(folder: Path, mode: str, *given: str) -> dict[str, object]:
    command = [PYTHON, str(SCRIPT), mode, "--folder", str(folder / "run"), *given]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=300)
    return json.loads(done.stdout)


@pytest.mark.parametrize("functions", ["native", "udf", "batched"])
def test_every_style_of_function_fills_every_cell(tmp_path: Path, functions: str) -> None:
    told = measured(tmp_path, "batch", "--rows", "300", "--functions", functions)
    assert (told["cells"], told["all_right"]) == (600, True)


def test_a_provider_is_called_once_a_row(tmp_path: Path, provider: str) -> None:
    asked = ("--rows", "200", "--provider-url", provider, "--answer", "answer to {input}")
    told = measured(tmp_path, "provider", *asked)
    assert (told["calls"], told["all_right"]) == (200, True)


def test_edits_are_shown_before_and_while_an_import_runs(tmp_path: Path, provider: str) -> None:
    asked = ("--rows", "400", "--provider-url", provider, "--connections", "5")
    told = measured(tmp_path, "edit", *asked, "--answer", "answer to {input}")
    idle, busy = told["edits_idle"], told["edits_while_importing"]
    assert isinstance(idle, dict)
    assert isinstance(busy, dict)
    assert (idle["edits"], idle["all_right"]) == (5, True)
    assert busy["edits"] >= 1


def test_an_import_that_was_killed_ends_with_every_row_once(tmp_path: Path, provider: str) -> None:
    asked = ("--rows", "400", "--provider-url", provider, "--connections", "5")
    told = measured(tmp_path, "crash", *asked, "--answer", "answer to {input}")
    assert (told["cells_lost"], told["rows_twice"]) == (0, 0)
    assert told["calls"] == told["calls_at_kill"] + 400
