"""The compute protocol: `await kind.compute(requests, context)` gives one result a request.

A kind is stateless and idempotent: the same request may be computed twice after a crash. Values are
plain JSON values (None, bool, int, float, str, list, dict); an absent input is not in the mapping.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

import msgspec

from everfill.kernel.config import Settings
from everfill.tables.types import ColumnType, TypeName
from everfill.tables.values import JsonValue

__all__ = [
    "ComputeContext",
    "ComputeKind",
    "ComputeRequest",
    "ComputeResult",
    "CostClass",
    "Failure",
    "FileStore",
    "KindSpec",
    "NotFound",
    "Usage",
    "Value",
]


class CostClass(StrEnum):
    """What a call spends, which decides how a worker schedules it."""

    INSTANT = "instant"
    """Microseconds of pure Python: hundreds of cells in one call."""
    LOCAL = "local"
    """Milliseconds to seconds of this machine's processors: small batches, off the loop."""
    REMOTE = "remote"
    """Waiting for somebody else's server: one slot a cell."""


class ComputeRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One cell to compute.

    Attributes:
        text: The column's template with every reference replaced by the input's text.
        inputs: Values of the referenced columns by name, as far as they are present.
        source: The sole input where the template is just one reference, with its type intact
            (a file, a number); None otherwise.
        output_type: What the column stores.
        options: The column's own options of this kind (validated by `check_options`).
    """

    text: str
    inputs: Mapping[str, JsonValue]
    source: JsonValue
    output_type: ColumnType
    options: Mapping[str, JsonValue]


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """What one call spent: tokens, and money in US dollars."""

    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float = 0.0
    model: str | None = None


class Value(msgspec.Struct, frozen=True, kw_only=True):
    """The cell has a value (which may be None: the source says that there is none).

    Attributes:
        value: What it stores.
        usage: What the calls for it spent.
        note: What whoever reads it should know of it.
    """

    value: JsonValue
    usage: Usage | None = None
    note: str | None = None


class NotFound(msgspec.Struct, frozen=True, kw_only=True):
    """The inputs do not hold an answer; the reason is for the person who reads the cell."""

    reason: str
    usage: Usage | None = None


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """No value.

    Attributes:
        code: Stable snake_case name (`rate_limited`, `timeout`, `too_large`, ...).
        message: What happened, in the source's own words where it has some; never a secret.
        transient: Whether the same call may succeed later.
        retry_after_seconds: How long the source asks to be left alone.
    """

    code: str
    message: str
    transient: bool
    retry_after_seconds: float | None = None
    usage: Usage | None = None


ComputeResult = Value | NotFound | Failure


class FileStore(Protocol):
    """Bytes by content address, for kinds that read or make files."""

    async def get(self, sha256: str) -> bytes:
        """The bytes; raises NotFoundError `blob_missing`."""
        ...

    async def put(self, data: bytes) -> str:
        """Store the bytes and return their sha256 (hexadecimal)."""
        ...


class Board(Protocol):
    """A small shared memory with a clock; best effort."""

    async def change(
        self, key: str, change: Callable[[bytes | None, float], bytes]
    ) -> tuple[bytes, float] | None:
        """Replace what stands at a key, all at once.

        Args:
            key: Such as a model's.
            change: Given what stands there and the board's time; it may be called more than once.

        Returns:
            What stands there now, and the time; None where the board does not answer.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeContext:
    """What a kind may use besides its requests."""

    settings: Settings
    files: FileStore
    board: Board | None = None
    """What processes tell each other of the models they call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KindSpec:
    """What a kind declares about itself.

    Attributes:
        name: How a column names it (`local:language`).
        summary: One line for people.
        cost_class: How it is scheduled.
        batch_max: Requests it takes in one call; 1 where its grain is one cell.
        default_type: What the column stores unless the column says otherwise.
        output_types: What it can store.
        version: Raised when the same inputs would give another value.
        pure: Whether it calls nothing and is done at once, whatever it is given: it may be computed
            inside a transaction, by whoever dispatches. Only an instant kind can be.
    """

    name: str
    summary: str
    cost_class: CostClass
    batch_max: int
    default_type: ColumnType
    output_types: frozenset[TypeName]
    version: int = 1
    pure: bool = False

    def __post_init__(self) -> None:
        if self.pure and self.cost_class is not CostClass.INSTANT:
            raise ValueError(f"Kind {self.name} is {self.cost_class}, so it cannot be pure.")


class ComputeKind(Protocol):
    """One way to fill a cell."""

    @property
    def spec(self) -> KindSpec:
        """What the kind declares about itself."""
        ...

    def check(self, output_type: ColumnType, options: Mapping[str, JsonValue]) -> None:
        """Refuse a column definition that could never compute.

        Raises:
            InvalidError: With what is wrong and how to put it right.
        """
        ...

    async def compute(
        self, requests: Sequence[ComputeRequest], context: ComputeContext
    ) -> Sequence[ComputeResult]:
        """Compute every request, in order.

        Args:
            requests: 1 to `spec.batch_max` requests.
            context: Shared by all calls of a worker.

        Returns:
            As many results as requests, in the same order. A fault of one request is its `Failure`;
            an exception fails the whole batch in passing.
        """
        ...

    async def aclose(self) -> None:
        """Give back what the kind holds on the running event loop (clients, processes).

        A kind that holds nothing inherits this. A worker calls it when it ends; a kind may be used
        again after it. Third-party kinds without it are accepted (see `registry.close_kinds`).
        """
