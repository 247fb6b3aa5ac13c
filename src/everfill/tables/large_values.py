"""Values too large for a row: kept in the blob store, referenced from their cell."""

from __future__ import annotations

from everfill.infra.blobs import Blobs
from everfill.kernel import limits
from everfill.tables.values import BlobRef, JsonValue, decode, encode

__all__ = ["LargeValues"]


class LargeValues:
    """The one way from a value to its stored form and back."""

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs

    async def store(self, value: JsonValue) -> bytes:
        """The stored form of a value, which for a large one is a reference to its blob.

        Raises:
            ValueError: JSON cannot say the value.
            UnavailableError: `blobs_unavailable`.
        """
        text = encode(value)
        if len(text) <= limits.BLOB_THRESHOLD_BYTES:
            return text
        sha256 = await self._blobs.put(text)
        return encode(BlobRef(sha256=sha256, size_bytes=len(text)))

    async def restore(self, stored: str) -> JsonValue:
        """The value of a stored form, fetched where it is a blob.

        Raises:
            NotFoundError: `blob_missing`.
            UnavailableError: `blobs_unavailable`.
        """
        value = decode(stored)
        return await self.fetch(value) if isinstance(value, BlobRef) else value

    async def fetch(self, reference: BlobRef) -> JsonValue:
        """The value that is a blob; raises like `restore`."""
        large = decode(await self._blobs.get(reference.sha256))
        assert not isinstance(large, BlobRef), "a blob holds a value, not another reference"
        return large
