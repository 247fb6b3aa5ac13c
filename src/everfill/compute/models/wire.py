"""What is asked of a model and what comes back, whatever its provider's wire format. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Literal, NamedTuple, Protocol, TypeVar

import msgspec

from everfill.tables.values import JsonValue

__all__ = [
    "Dialect",
    "Finish",
    "MalformedError",
    "Message",
    "Prompt",
    "Quirk",
    "Reply",
    "Tokens",
    "decode",
]


_T = TypeVar("_T")


class Message(NamedTuple):
    """One message of a conversation."""

    role: Literal["user", "assistant"]
    text: str


class Quirk(StrEnum):
    """What a model turned out not to take; learnt from its refusals."""

    NO_SCHEMA = "no_schema"
    """No JSON schema for the answer: the schema stands in the words alone."""
    OTHER_LIMIT = "other_limit"
    """The other name of the bound on tokens."""


class Prompt(msgspec.Struct, frozen=True, kw_only=True):
    """One request.

    Attributes:
        model: The provider's own name of the model.
        system: Instructions above the conversation.
        messages: The conversation; the last one is the user's.
        schema: JSON schema of the answer; None: plain text.
        strict: Whether the provider is to hold the model to every letter of the schema.
        temperature: 0 to 2; None: the model's own.
        output_tokens_max: Bound of the answer.
        quirks: What this model does not take.
    """

    model: str
    system: str
    messages: Sequence[Message]
    schema: Mapping[str, JsonValue] | None = None
    strict: bool = True
    temperature: float | None = None
    output_tokens_max: int
    quirks: frozenset[Quirk] = frozenset()


class Finish(StrEnum):
    """Why an answer ended."""

    STOP = "stop"
    LENGTH = "length"
    """It was cut off."""
    REFUSED = "refused"
    """The model, or a filter of its provider, would not answer."""


class Tokens(NamedTuple):
    """Tokens of one call; those read from and written to a provider's cache are part of `input`."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """An answer.

    Attributes:
        text: What the model said; where it refused: its reason, as far as there is one.
        finish: Why it ended.
        model: Which model answered, as the provider names it; None: it does not say.
        tokens: What is billed.
    """

    text: str
    finish: Finish
    model: str | None = None
    tokens: Tokens = Tokens()


class MalformedError(Exception):
    """A body that is not a reply in this dialect."""


def decode(decoder: msgspec.json.Decoder[_T], body: bytes) -> _T:
    """A body in a dialect's own shape.

    Raises:
        MalformedError: It has another one.
    """
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedError(str(error)) from None


class Dialect(Protocol):
    """A provider's wire format."""

    def path(self, model: str) -> str:
        """Below the connection's base URL."""
        ...

    def headers(self, key: str | None) -> Mapping[str, str]:
        """How a key is presented, and whatever else every request carries."""
        ...

    def body(self, prompt: Prompt) -> Mapping[str, JsonValue]:
        """The request as JSON."""
        ...

    def read(self, body: bytes) -> Reply:
        """The reply in the body of a success.

        Raises:
            MalformedError: It is something else.
        """
        ...
