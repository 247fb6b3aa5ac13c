"""Writers: rows become a file, streamed, and the file appears only when it is whole.

Nothing here knows the database.
"""

from __future__ import annotations

from everfill.tables.exports.opening import SUPPORTED_SUFFIXES, check_target, open_sink
from everfill.tables.exports.sink import Sink, SinkColumn, SinkRow

__all__ = ["SUPPORTED_SUFFIXES", "Sink", "SinkColumn", "SinkRow", "check_target", "open_sink"]
