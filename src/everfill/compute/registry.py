"""Kinds by name: those that ship with Everfill, and those that installed packages add.

Importing this module imports no kind. A kind is loaded, made once and kept when it is first asked
for; its own heavy libraries wait until it computes. A third-party kind that cannot be loaded is an
error for the columns that use it and for nobody else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Final, cast

from everfill.compute.protocol import ComputeKind
from everfill.kernel.errors import InvalidError

__all__ = ["ENTRY_POINT_GROUP", "close_kinds", "get_kind", "list_kinds"]

ENTRY_POINT_GROUP: Final = "everfill.compute"
"""An entry point's name is the kind's; its object is called without arguments to make the kind."""

_BUILTIN: Final = {
    "ai": "everfill.compute.ai:AiKind",
    "extract_text": "everfill.compute.extract_text:ExtractTextKind",
    "fetch": "everfill.compute.fetch:FetchKind",
    "local:classify": "everfill.compute.local_classify:ClassifyKind",
    "local:embed": "everfill.compute.local_embed:EmbedKind",
    "local:keywords": "everfill.compute.local_keywords:KeywordsKind",
    "local:language": "everfill.compute.local_language:LanguageKind",
    "local:sentiment": "everfill.compute.local_sentiment:SentimentKind",
    "local:summary": "everfill.compute.local_summary:SummaryKind",
    "template": "everfill.compute.template:TemplateKind",
}


def list_kinds() -> list[str]:
    """The names of every kind that a column may use, in order, loaded or not."""
    return sorted({*_BUILTIN, *_third_party()})


@cache
def get_kind(name: str) -> ComputeKind:
    """The kind of this name, the same object at every call.

    Raises:
        InvalidError: `kind_unknown`, or `kind_broken` where a package's kind cannot be loaded.
    """
    if target := _BUILTIN.get(name):
        module, _, factory = target.partition(":")
        return cast("ComputeKind", getattr(import_module(module), factory)())
    if entry := _third_party().get(name):
        return _load(entry)
    raise InvalidError("kind_unknown", f"There is no kind `{name}`.", hint=_suggestion(name))


async def close_kinds(kinds: Iterable[ComputeKind]) -> None:
    """Close those of the kinds that have something to close."""
    for kind in kinds:
        if hasattr(kind, "aclose"):
            await kind.aclose()


@cache
def _third_party() -> dict[str, EntryPoint]:
    """The first entry point of each name; a built-in kind cannot be replaced."""
    found: dict[str, EntryPoint] = {}
    for entry in entry_points(group=ENTRY_POINT_GROUP):
        if entry.name not in _BUILTIN:
            found.setdefault(entry.name, entry)
    return found


def _load(entry: EntryPoint) -> ComputeKind:
    package = entry.dist.name if entry.dist else "an unknown package"
    try:
        factory = cast("Callable[[], ComputeKind]", entry.load())
        kind = factory()
        declared = kind.spec.name
    except Exception as error:  # whatever a stranger's package raises is reported, not hidden
        message = f"Kind `{entry.name}` of {package} does not load: {error!r}."
        hint = f"Its entry point is {entry.value}; update or remove the package."
        raise InvalidError("kind_broken", message, hint=hint) from error
    if declared != entry.name:
        message = f"Kind `{entry.name}` of {package} calls itself `{declared}`."
        raise InvalidError("kind_broken", message, hint="Both names must be the same.")
    return kind


def _suggestion(name: str) -> str:
    known = list_kinds()
    close = get_close_matches(name, known, n=3, cutoff=0.5)
    close += [kind for kind in known if kind.partition(":")[2] == name and kind not in close]
    meant = f"Did you mean {' or '.join(f'`{kind}`' for kind in close)}? " if close else ""
    return f"{meant}Known kinds: {', '.join(known)}."
