"""The reader process: reads one document after another, within bounds of its own making.

Run as `python -m everfill.compute.extract_worker MEMORY_BYTES`; it speaks the frames that
`extract_result` describes over standard input and output.
It ends with its input, with its parent, and after a fault that may have left it unwell.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import sys
from dataclasses import asdict
from typing import BinaryIO, Final

from everfill.compute.extract_formats import extract
from everfill.compute.extract_result import REPLY, REQUEST, UnreadableError

__all__ = ["main"]

_PR_SET_PDEATHSIG: Final = 1


def main() -> None:
    """Serve until the input ends."""
    requests, replies = _take_channels()
    _end_with_parent()
    _limit(int(sys.argv[1]))
    while head := requests.read(REQUEST.size):
        meta_bytes, data_bytes = REQUEST.unpack(head)
        meta = json.loads(requests.read(meta_bytes))
        reply, healthy = _read(requests.read(data_bytes), meta)
        body = json.dumps(reply).encode()
        replies.write(REPLY.pack(len(body)) + body)
        replies.flush()
        if not healthy:
            break


def _read(data: bytes, meta: dict[str, str]) -> tuple[dict[str, str | None], bool]:
    """The reply, and whether this process may read another file."""
    try:
        document = extract(
            data, name=meta["name"], mime=meta["mime"], charset=meta["charset"] or None
        )
    except UnreadableError as error:
        return {"code": error.code, "message": error.message}, True
    except (MemoryError, RecursionError) as error:
        return {
            "code": "too_large",
            "message": f"Reading it takes too much memory ({error!r}).",
        }, False
    except Exception as error:  # noqa: BLE001 - a parser may raise anything over a broken file
        return {"code": "file_broken", "message": f"The file cannot be read: {error!r}"}, True
    return asdict(document), True


def _take_channels() -> tuple[BinaryIO, BinaryIO]:
    """Keep standard input and output for the frames: a library that prints must not break one."""
    requests, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    return requests, replies


def _end_with_parent() -> None:
    """Die with the parent even in the middle of a file (Linux); elsewhere the input's end does."""
    if sys.platform == "linux":
        parent = os.getppid()
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            sys.exit(0)


def _limit(memory_bytes: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))


if __name__ == "__main__":
    main()
