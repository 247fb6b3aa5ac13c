"""Bytes by content address: files, and values too large for a row.

A blob's name is the sha256 of its bytes, so that storing it twice is storing it once and a reader
can trust what it gets. Any store that obstore knows will do; unset, it is a folder of the data
folder.
"""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import LocalStore, MemoryStore, ObjectStore, from_url

from everfill.kernel.config import Settings
from everfill.kernel.errors import NotFoundError, UnavailableError

__all__ = ["Blobs", "open_blobs"]

_READ_BYTES = 1 << 20  # a file is hashed and sent in pieces of this size


class Blobs:
    """A content-addressed store."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    async def put(self, data: bytes) -> str:
        """Store bytes and return their sha256 (hexadecimal).

        Raises:
            UnavailableError: `blobs_unavailable`.
        """
        sha256 = hashlib.sha256(data).hexdigest()
        await self._put(sha256, data)
        return sha256

    async def put_file(self, path: Path) -> str:
        """Store a file, streamed, and return its sha256 (hexadecimal)."""
        sha256 = await asyncio.to_thread(_hash_file, path)
        await self._put(sha256, path)
        return sha256

    async def get(self, sha256: str) -> bytes:
        """The bytes of a blob.

        Raises:
            NotFoundError: `blob_missing`.
            UnavailableError: `blobs_unavailable`.
        """
        try:
            result = await obstore.get_async(self._store, _path(sha256))
            return bytes(await result.bytes_async())
        except FileNotFoundError:
            message = f"The blob {sha256[:12]}… is not in the store."
            hint = "Was the data folder or the bucket changed? Import the file again."
            raise NotFoundError("blob_missing", message, hint=hint) from None
        except (BaseError, OSError) as error:
            raise _unavailable(error) from error

    async def _put(self, sha256: str, data: bytes | Path) -> None:
        try:
            await obstore.put_async(self._store, _path(sha256), data, mode="create")
        except AlreadyExistsError:
            return
        except (BaseError, OSError) as error:
            raise _unavailable(error) from error


def open_blobs(settings: Settings) -> Blobs:
    """The store that settings name."""
    url = settings.blobs.url
    if url == "memory://":
        return Blobs(MemoryStore())
    if url:
        return Blobs(from_url(url))
    return Blobs(LocalStore(settings.data_dir / "blobs", mkdir=True))


def _path(sha256: str) -> str:
    return f"{sha256[:2]}/{sha256}"


def _hash_file(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(_READ_BYTES):
            digest.update(piece)
    return digest.hexdigest()


def _unavailable(error: Exception) -> UnavailableError:
    return UnavailableError(
        "blobs_unavailable",
        f"The blob store does not answer: {error}.",
        hint="Check blobs.url and the free space of the disk.",
    )
