"""Inputs that are too long for a model, cut by a policy that the column states. No I/O.

What is cut is the longest input, not the prompt around it: instructions stand at its end as often
as at its beginning.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, NamedTuple

from everfill.tables.values import JsonValue, to_text

__all__ = ["Cut", "Policy", "cut_inputs"]

_HEAD_SHARE: Final = 0.7
"""Of what is kept of both ends: beginnings say more."""
_CHARS_MIN: Final = 200
"""Of an input that is worth cutting: a mark is nearly as long as a shorter one."""


class Policy(StrEnum):
    """What is kept of an input that is too long."""

    HEAD = "head"
    HEAD_AND_TAIL = "head_and_tail"


class Cut(NamedTuple):
    """A prompt that fits.

    Attributes:
        text: The prompt.
        note: What was left out, for whoever reads the cell; None: nothing.
    """

    text: str
    note: str | None = None


def cut_inputs(
    text: str, inputs: Mapping[str, JsonValue], *, chars_max: int, policy: Policy
) -> Cut:
    """A prompt of at most about so many characters.

    Args:
        text: The prompt with its inputs in it.
        inputs: Their values by column.
        chars_max: Bound of the prompt; kept where its inputs are what is long.
        policy: What to keep.
    """
    notes: list[str] = []
    written = {name: to_text(value) for name, value in inputs.items()}
    for name, part in sorted(written.items(), key=lambda item: -len(item[1])):
        over = len(text) - chars_max
        copies = text.count(part) if part else 0
        if over <= 0 or not copies or len(part) < _CHARS_MIN:
            continue
        left_out = min(len(part), -(-over // copies) + len(_mark(len(part))))
        kept = len(part) - left_out
        text = text.replace(part, _shortened(part, kept, policy))
        how = "its beginning" if policy is Policy.HEAD else "its two ends"
        notes.append(
            f"{left_out:,} of {len(part):,} characters of {name} were left out; the model saw {how}"
        )
    return Cut(text, "; ".join(notes) or None)


def _shortened(part: str, kept: int, policy: Policy) -> str:
    mark = _mark(len(part) - kept)
    if policy is Policy.HEAD:
        return part[:kept] + mark
    head = round(kept * _HEAD_SHARE)
    return part[:head] + mark + part[len(part) - (kept - head) :]


def _mark(left_out: int) -> str:
    return f"\n[… {left_out:,} characters left out …]\n"
