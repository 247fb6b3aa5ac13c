"""The cells of a simulation: a million as arrays, or a few as objects that check the arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from everfill.autofill.machine import Cell, State, Token, step
from everfill.bench.simulator.rules import STATES, Happening, compile_rules, event_of

__all__ = ["ArrayCells", "CellStore", "Ids", "ObjectCells", "Tokens"]

Ids: TypeAlias = "NDArray[np.int64]"


@dataclass(frozen=True, slots=True)
class Tokens:
    """What workers hold of claimed cells: a result lands only where `place` still stands."""

    ids: Ids
    place: NDArray[np.int64]
    signal: NDArray[np.int64]

    def pick(self, chosen: NDArray[np.bool_]) -> Tokens:
        """Some of them."""
        return Tokens(self.ids[chosen], self.place[chosen], self.signal[chosen])


class CellStore(Protocol):
    """Cells that obey the machine. Ids within one call are distinct."""

    def signal(self, ids: Ids) -> Ids:
        """Signal cells; returns those that must be given a place in a lane."""
        ...

    def claim(self, ids: Ids) -> Tokens:
        """Take queued cells."""
        ...

    def finalize(self, tokens: Tokens, *, failed: NDArray[np.bool_]) -> tuple[Ids, Ids, int]:
        """Bring results home; `failed`: in passing.

        Returns:
            The cells that must be given a place, those that wait to be tried again, and the number
            of results that came too late.
        """
        ...

    def expire(self, tokens: Tokens) -> Ids:
        """Take back what lost workers held; returns those that must be given a place."""
        ...

    def retry(self, ids: Ids) -> Ids:
        """Try again what failed in passing; returns those that must be given a place."""
        ...

    def are(self, state: State, ids: Ids | None = None) -> NDArray[np.bool_]:
        """Whether cells (None: all) are in a state."""
        ...

    def outdated(self) -> NDArray[np.bool_]:
        """Every cell's mark."""
        ...


class ArrayCells:
    """Cells as arrays, moved by the compiled rules: 8 bytes a cell."""

    def __init__(self, count: int) -> None:
        self._rules = compile_rules()
        self._code = np.full(count, self._rules.untouched, np.uint16)
        self._place = np.zeros(count, np.uint32)
        self._signal = np.zeros(count, np.uint16)

    def signal(self, ids: Ids) -> Ids:
        """Everything a signal does to them."""
        before = self._place[ids]
        self._happen(Happening.SIGNAL, ids)
        return ids[self._place[ids] != before]

    def claim(self, ids: Ids) -> Tokens:
        """Take queued cells."""
        self._happen(Happening.CLAIM, ids)
        return Tokens(ids, self._place[ids].astype(np.int64), self._signal[ids].astype(np.int64))

    def finalize(self, tokens: Tokens, *, failed: NDArray[np.bool_]) -> tuple[Ids, Ids, int]:
        """Bring results home."""
        held = self._held(tokens)
        late = len(tokens.ids) - int(np.count_nonzero(held))
        if late:
            tokens, failed = tokens.pick(held), failed[held]
        dirty = self._signal[tokens.ids] != tokens.signal
        if not dirty.any() and not failed.any():  # nearly always
            self._happen(Happening.ANSWER, tokens.ids)
            return tokens.ids[:0], tokens.ids[:0], late
        self._happen(Happening.ANSWER, tokens.ids[~failed & ~dirty])
        self._happen(Happening.ANSWER_DIRTY, tokens.ids[~failed & dirty])
        self._happen(Happening.TRANSIENT, tokens.ids[failed & ~dirty])
        self._happen(Happening.TRANSIENT_DIRTY, tokens.ids[failed & dirty])
        again, retrying = self.are(State.QUEUED, tokens.ids), self.are(State.RETRYING, tokens.ids)
        return tokens.ids[again], tokens.ids[retrying], late

    def expire(self, tokens: Tokens) -> Ids:
        """Take back what lost workers held."""
        ids = tokens.ids[self._held(tokens)]
        self._happen(Happening.EXPIRE, ids)
        return ids[self.are(State.QUEUED, ids)]

    def retry(self, ids: Ids) -> Ids:
        """Try again what is due."""
        before = self._place[ids]
        self._happen(Happening.RETRY_DUE, ids)
        return ids[self._place[ids] != before]

    def are(self, state: State, ids: Ids | None = None) -> NDArray[np.bool_]:
        """Whether they are in a state."""
        code = self._code if ids is None else self._code[ids]
        return self._rules.state[code] == STATES.index(state)

    def outdated(self) -> NDArray[np.bool_]:
        """Every cell's mark."""
        return self._rules.outdated[self._code]

    def _held(self, tokens: Tokens) -> NDArray[np.bool_]:
        return self.are(State.COMPUTING, tokens.ids) & (self._place[tokens.ids] == tokens.place)

    def _happen(self, happening: Happening, ids: Ids) -> None:
        if not len(ids):
            return
        rules, code = self._rules, self._code[ids]
        self._code[ids] = rules.code[happening][code]
        if rules.place[happening].any():
            self._place[ids] += rules.place[happening][code]
        if happening is not Happening.CLAIM:
            self._signal[ids] = (
                self._signal[ids] * rules.signal_factor[happening][code]
                + rules.signal_growth[happening][code]
            )


class ObjectCells:
    """The same cells as the machine's own objects, one step at a time: slow, and the judge."""

    def __init__(self, count: int) -> None:
        self.cells = [Cell()] * count

    def signal(self, ids: Ids) -> Ids:
        """Everything a signal does to them."""
        return self._placed(Happening.SIGNAL, ids)

    def claim(self, ids: Ids) -> Tokens:
        """Take queued cells."""
        for cell in _numbers(ids):
            self._step(Happening.CLAIM, cell)
        tokens = [self.cells[cell].token for cell in _numbers(ids)]
        return Tokens(
            ids,
            np.array([token.place for token in tokens], np.int64),
            np.array([token.signal for token in tokens], np.int64),
        )

    def finalize(self, tokens: Tokens, *, failed: NDArray[np.bool_]) -> tuple[Ids, Ids, int]:
        """Bring results home."""
        held = [self._holds(token) for token in self._each(tokens)]
        for token, transient in zip(self._each(tokens), failed, strict=True):
            happening = Happening.TRANSIENT if transient else Happening.ANSWER
            self.cells[token[0]] = step(self.cells[token[0]], event_of(happening, token[1]))
        ids = tokens.ids[np.array(held, np.bool_)]
        return (
            ids[[self.cells[cell].state is State.QUEUED for cell in _numbers(ids)]],
            ids[[self.cells[cell].state is State.RETRYING for cell in _numbers(ids)]],
            len(tokens.ids) - len(ids),
        )

    def expire(self, tokens: Tokens) -> Ids:
        """Take back what lost workers held."""
        held = [token[0] for token in self._each(tokens) if self._holds(token)]
        return self._placed(Happening.EXPIRE, np.array(held, np.int64))

    def retry(self, ids: Ids) -> Ids:
        """Try again what is due."""
        return self._placed(Happening.RETRY_DUE, ids)

    def are(self, state: State, ids: Ids | None = None) -> NDArray[np.bool_]:
        """Whether they are in a state."""
        chosen = range(len(self.cells)) if ids is None else _numbers(ids)
        return np.array([self.cells[cell].state is state for cell in chosen], np.bool_)

    def outdated(self) -> NDArray[np.bool_]:
        """Every cell's mark."""
        return np.array([cell.outdated for cell in self.cells], np.bool_)

    def _placed(self, happening: Happening, ids: Ids) -> Ids:
        before = [self.cells[cell].place for cell in _numbers(ids)]
        for cell in _numbers(ids):
            self._step(happening, cell)
        moved = [
            self.cells[cell].place != place
            for cell, place in zip(_numbers(ids), before, strict=True)
        ]
        return ids[np.array(moved, np.bool_)]

    def _step(self, happening: Happening, cell: int) -> None:
        self.cells[cell] = step(self.cells[cell], event_of(happening, self.cells[cell].token))

    def _holds(self, token: tuple[int, Token]) -> bool:
        cell = self.cells[token[0]]
        return cell.state is State.COMPUTING and cell.place == token[1].place

    @staticmethod
    def _each(tokens: Tokens) -> list[tuple[int, Token]]:
        return [
            (int(cell), Token(place=int(place), signal=int(signal), definition=1))
            for cell, place, signal in zip(tokens.ids, tokens.place, tokens.signal, strict=True)
        ]


def _numbers(ids: Ids) -> list[int]:
    return [int(cell) for cell in ids]
