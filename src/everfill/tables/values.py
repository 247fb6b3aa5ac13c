"""Values, and how Postgres keeps them.

A value is what JSON can say. Postgres cannot hold a NUL character or half of a surrogate pair in
`jsonb`, so the codec writes any such code unit as U+FDD0 (a character Unicode promises never to
assign) and four hexadecimal digits, and writes U+FDD0 itself the same way: nothing is lost.
A value too large for a row is kept in the blob store; the cell then holds a `BlobRef`, written as
the string U+FDD0 `blob:<sha256>:<bytes>`, which no encoded value can be mistaken for.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeAlias

import msgspec

__all__ = ["MISSING", "BlobRef", "JsonValue", "Missing", "decode", "encode", "to_text"]

JsonValue: TypeAlias = "bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None"


class Missing(Enum):
    """The type of `MISSING`: a cell without a value, which is neither None nor the empty string."""

    MISSING = "missing"


MISSING: Final = Missing.MISSING

_ESCAPE: Final = "\ufdd0"
_UNSTORABLE: Final = re.compile("[\x00\ud800-\udfff\ufdd0]")
_ESCAPED: Final = re.compile("\ufdd0([0-9a-f]{4})")
_BLOB: Final = re.compile("\ufdd0blob:([0-9a-f]{64}):([0-9]+)")
_ENCODER: Final = msgspec.json.Encoder()


@dataclass(frozen=True, slots=True, kw_only=True)
class BlobRef:
    """Where a value lives that is too large for its cell."""

    sha256: str
    size_bytes: int


def encode(value: JsonValue | BlobRef) -> bytes:
    """The JSON text of a value, safe for `jsonb`.

    Raises:
        ValueError: The value holds NaN or an infinity, which JSON cannot say.
    """
    if isinstance(value, BlobRef):
        return _ENCODER.encode(f"{_ESCAPE}blob:{value.sha256}:{value.size_bytes}")
    try:
        text = _ENCODER.encode(value)
    except UnicodeEncodeError:
        return _ENCODER.encode(_escape(value))
    if b"null" in text and not _is_finite(value):  # the encoder writes NaN as null
        message = "NaN and infinities are no JSON values"
        raise ValueError(message)
    if b"\\u0000" in text or b"\xef\xb7\x90" in text:
        return _ENCODER.encode(_escape(value))
    return text


def decode(stored: str | bytes) -> JsonValue | BlobRef:
    """The value that `encode` wrote."""
    text = stored if isinstance(stored, str) else stored.decode()
    if _ESCAPE not in text:
        if text[0] == '"' and "\\" not in text:  # most values: nothing in it is escaped
            return text[1:-1]
        return json.loads(text)
    value: JsonValue = json.loads(text)
    if isinstance(value, str) and (match := _BLOB.fullmatch(value)):
        return BlobRef(sha256=match[1], size_bytes=int(match[2]))
    return _unescape(value)


def to_text(value: JsonValue) -> str:
    """How a value reads inside a template or a CSV field: text as it is, the rest as JSON."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    return json.dumps(value, ensure_ascii=False)


def _is_finite(value: JsonValue) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, list):
        return all(_is_finite(item) for item in value)
    if isinstance(value, dict):
        return all(_is_finite(item) for item in value.values())
    return True


def _escape(value: JsonValue) -> JsonValue:
    if isinstance(value, str):
        return _UNSTORABLE.sub(lambda match: f"{_ESCAPE}{ord(match[0]):04x}", value)
    if isinstance(value, list):
        return [_escape(item) for item in value]
    if isinstance(value, dict):
        return {str(_escape(key)): _escape(item) for key, item in value.items()}
    return value


def _unescape(value: JsonValue) -> JsonValue:
    if isinstance(value, str):
        return _ESCAPED.sub(lambda match: chr(int(match[1], 16)), value)
    if isinstance(value, list):
        return [_unescape(item) for item in value]
    if isinstance(value, dict):
        return {str(_unescape(key)): _unescape(item) for key, item in value.items()}
    return value
