"""What `make demo` does, in a folder of the test's own: the examples fill, with right values."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from repository import ROOT

ABOUT = {
    "acta-reunion-proveedores.html": ("meeting", "es"),
    "facture-088.docx": ("invoice", "fr"),
    "invoice-2026-0417.pdf": ("invoice", "en"),
    "mietvertrag-lagerhalle.pdf": ("contract", "de"),
    "minutes-board-2026-03.md": ("meeting", "en"),
    "price-list-2026.xlsx": ("catalogue", "en"),
    "protokoll-teamsitzung.txt": ("meeting", "de"),
    "rechnung-4711.html": ("invoice", "de"),
    "research-note-heat-pumps.pdf": ("research", "en"),
    "service-contract-brightwell.docx": ("contract", "en"),
    "spring-campaign.pptx": ("marketing", "en"),
    "travel-policy.md": ("policy", "en"),
}


def _fill(name: str, source: str, folder: Path) -> list[dict[str, str]]:
    out = folder / f"{name}.csv"
    environment = {k: v for k, v in os.environ.items() if not k.startswith("EVERFILL_")}
    environment["EVERFILL_CONFIG"] = str(ROOT / "examples" / "demo.toml")
    everfill = Path(sys.executable).with_name("everfill")
    command = [str(everfill), "fill", str(ROOT / "examples" / source)]
    command += ["--recipe", str(ROOT / "examples" / f"{name}.toml")]
    command += ["--out", str(out), "--data-dir", str(folder / "data")]
    done = subprocess.run(
        command, env=environment, cwd=folder, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    with out.open(encoding="utf-8-sig", newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One data directory for both examples, as in the demo."""
    return tmp_path_factory.mktemp("demo")


def test_the_reviews_get_their_language_mood_gist_and_line(folder: Path) -> None:
    rows = _fill("reviews", "reviews.csv", folder)
    languages, moods = _truth()
    assert len(rows) == 216
    assert [row["lang"] for row in rows] == [languages[row["place"]] for row in rows]
    right = sum(
        any(row["review"].startswith(opening) for opening in moods[row["mood"]]) for row in rows
    )
    assert right >= len(rows) * 0.95
    for row in rows:
        assert row["gist"]
        assert row["gist"] in row["review"]
        assert row["keywords"]
        assert row["line"] == f"{row['place']}: {row['mood']} ({row['lang']}) — {row['gist']}"


def test_the_documents_get_their_text_language_and_subject(folder: Path) -> None:
    rows = _fill("documents", "documents", folder)
    found = {}
    for row in rows:
        name = next(name for name in ABOUT if name in row["file"])
        found[name] = (row["about"], row["lang"])
        assert row["gist"]
        assert row["card"] == f"{row['about']} ({row['lang']}): {row['gist']}"
    assert found == ABOUT


def _truth() -> tuple[dict[str, str], dict[str, list[str]]]:
    """The language of each place, and the openings of each mood, from what made the reviews."""
    text = (ROOT / "tools" / "example_data" / "reviews.toml").read_text(encoding="utf-8")
    material = tomllib.loads(text)["language"]
    languages = {place: one["code"] for one in material for place in one["places"]}
    moods = {
        mood: [opening for one in material for opening in one[mood]]
        for mood in ("positive", "negative", "neutral")
    }
    return languages, moods
