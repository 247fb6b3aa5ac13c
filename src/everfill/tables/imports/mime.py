"""What a file is, by its first bytes and its name."""

from __future__ import annotations

import mimetypes
from pathlib import Path
from typing import Final

import puremagic

__all__ = ["file_mime"]

_HEAD_BYTES: Final = 4_096
_BY_NAME: Final = {
    ".md": "text/markdown",
    ".csv": "text/csv",
    ".tsv": "text/tab-separated-values",
    ".jsonl": "application/x-ndjson",
    ".parquet": "application/vnd.apache.parquet",
    ".webp": "image/webp",
    ".heic": "image/heic",
    ".flac": "audio/flac",
    ".m4a": "audio/mp4",
    ".mkv": "video/x-matroska",
    ".docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    ".pptx": "application/vnd.openxmlformats-officedocument.presentationml.presentation",
    ".xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
}
_TELLING: Final = ("image/", "audio/", "video/", "application/pdf")
_UNKNOWN: Final = "application/octet-stream"


def file_mime(path: Path) -> str:
    """The MIME type of a file.

    A picture, a sound, a film or a PDF shows in its first bytes, whatever it is called; for the
    rest (text, and zip files such as documents) the name says more.
    """
    suffix = path.suffix.lower()
    named = _BY_NAME.get(suffix) or mimetypes.guess_type(f"file{suffix}", strict=False)[0]
    seen = _by_content(path)
    if seen is None:
        return named or _UNKNOWN
    same_family = named is not None and named.partition("/")[0] == seen.partition("/")[0]
    if seen.startswith(_TELLING) and not same_family:
        return seen
    return named or seen


def _by_content(path: Path) -> str | None:
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
    if not head:
        return None
    try:
        return puremagic.from_string(head, mime=True) or None  # pyright: ignore[reportUnknownMemberType] - an unparametrized PathLike in its signature
    except (puremagic.PureError, ValueError):
        return None  # nothing known begins like this: text, mostly
