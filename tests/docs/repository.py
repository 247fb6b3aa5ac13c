"""What the checks of this folder look at: the files of the repository, as git sees them."""

from __future__ import annotations

import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_SKIPPED = {".git", ".venv", "out", "node_modules"}


@cache
def files() -> tuple[Path, ...]:
    """Every file that is committed or about to be; without git, every file but the usual litter."""
    paths = _listed_by_git() or [
        path for path in ROOT.rglob("*") if not _SKIPPED & set(path.relative_to(ROOT).parts)
    ]
    return tuple(path for path in paths if path.is_file())


def _listed_by_git() -> list[Path]:
    """Nothing where there is no git, or where it refuses a folder of another user."""
    git = shutil.which("git")
    if git is None:
        return []
    command = [git, "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    return [ROOT / name for name in listed.stdout.split("\0") if name]


def pages() -> list[Path]:
    """The Markdown files, less the example documents, which are data."""
    examples = ROOT / "examples" / "documents"
    return [path for path in files() if path.suffix == ".md" and examples not in path.parents]


def name_of(path: Path) -> str:
    """The path as a test's id."""
    return path.relative_to(ROOT).as_posix()


def fences(page: Path, *languages: str) -> list[str]:
    """The fenced blocks of a page in one of the languages."""
    text = page.read_text(encoding="utf-8")
    return [block for language, block in _FENCE.findall(text) if language in languages]


def without_fences(page: Path) -> str:
    """The prose of a page."""
    return _FENCE.sub("", page.read_text(encoding="utf-8"))
