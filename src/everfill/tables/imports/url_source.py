"""A list of web addresses: one a line; blank lines and lines that start with # are passed over."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path

from everfill.kernel.errors import InvalidError
from everfill.tables.imports.encoding import detect_encoding, open_text
from everfill.tables.imports.source import (
    BadRow,
    BadRows,
    OnBadRow,
    SourceColumn,
    SourceRow,
    SyncSource,
)
from everfill.tables.imports.splitter import BAD_BYTE, physical_lines
from everfill.tables.parse import parse_value
from everfill.tables.types import ColumnType, TypeName

__all__ = ["UrlSource"]

_URL = ColumnType(name=TypeName.URL)


class UrlSource(SyncSource):
    """A text file of web addresses, as one column `url`.

    A row's key is its address, so that lines may be added or moved between two imports; an address
    that comes again has `#2` after a space. Only a hash of each address is kept in memory.

    Raises:
        InvalidError: The file holds no address, or (unless bad rows are skipped) lines that are
            none.
    """

    def __init__(self, path: Path, *, on_bad_row: OnBadRow) -> None:
        super().__init__(size_bytes=path.stat().st_size, on_bad_row=on_bad_row)
        self._path = path
        self._encoding = detect_encoding(path)
        self.columns = (SourceColumn(name="url", type=_URL),)
        self.row_count = self._count()

    def read(self, rows_max: int) -> Iterator[list[SourceRow]]:
        """Read all rows from the start, at most `rows_max` at a time."""
        self._bad.clear()
        seen: dict[bytes, int] = {}
        batch: list[SourceRow] = []
        for line, item in self._addresses():
            if isinstance(item, BadRow):
                self._refuse(item)
                continue
            digest = blake2b(item.encode("utf-8", "surrogatepass"), digest_size=12).digest()
            times = seen[digest] = seen.get(digest, 0) + 1
            batch.append(SourceRow(item if times == 1 else f"{item} #{times}", (item,), line))
            if len(batch) == rows_max:
                yield batch
                batch = []
        if batch:
            yield batch

    def _count(self) -> int:
        bad = BadRows()
        rows = 0
        for _, item in self._addresses():
            if isinstance(item, BadRow):
                bad.add(item)
            else:
                rows += 1
        if not rows:
            message = f"{self._path.name} holds no web address."
            hint = "Write one a line, as https://example.org/page; or name a table .csv or .tsv."
            raise InvalidError("file_empty", message, hint=hint)
        if bad.count and self._on_bad_row == "stop":
            raise bad.stop()
        return rows

    def _addresses(self) -> Iterator[tuple[int, str | BadRow]]:
        with open_text(self._path, self._encoding) as text:
            for line, content in enumerate(physical_lines(text), start=1):
                address = content.strip()
                if address and not address.startswith("#"):
                    yield line, _address(address, line)


def _address(text: str, line: int) -> str | BadRow:
    if BAD_BYTE in text:
        return BadRow(line=line, reason="bytes that are no text in the file's encoding")
    try:
        return str(parse_value(text, _URL))
    except InvalidError as error:
        return BadRow(line=line, reason=error.message.rstrip("."))
