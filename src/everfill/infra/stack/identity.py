"""As whom Postgres runs: it refuses root, and a uid that has no name."""

from __future__ import annotations

import os
import pwd
import sys
from pathlib import Path
from typing import Final

from everfill.infra.stack.children import PLAIN, Program, last_words, run_to_end
from everfill.kernel.errors import UnavailableError

__all__ = ["candidates", "choose_identity", "hand_over"]

_NOBODY_UID: Final = 65_534
_PROBE_SECONDS: Final = 20.0


async def choose_identity(postgres: Path) -> tuple[str, str]:
    """The first identity under which the program runs here, and the version it then prints.

    Raises:
        UnavailableError: `postgres_identity_refused`, where none works.
    """
    printed = "no identity to try"
    for identity in candidates(os.geteuid(), sys.platform):
        probe = Program(arguments=(str(postgres), "--version"), identity=identity)
        code, printed = await run_to_end(probe, timeout_seconds=_PROBE_SECONDS)
        if code == 0:
            return identity, printed.strip().rpartition(" ")[2]
    message = f"Postgres cannot be started as this user: {last_words(printed)}"
    hint = "Run Everfill as an ordinary user, or set postgres.url to an outside server."
    raise UnavailableError("postgres_identity_refused", message, hint=hint)


def candidates(uid: int, system: str) -> list[str]:
    """The identities worth trying for a uid, best first."""
    if uid != 0 and _has_name(uid):
        return [PLAIN]
    if system != "linux":
        return []
    ordinary = _NOBODY_UID if _has_name(_NOBODY_UID) else _any_ordinary_uid()
    if ordinary is None:
        return []
    return [f"namespace:{ordinary}"] + ([f"nobody:{ordinary}"] if uid == 0 else [])


def hand_over(directory: Path, identity: str) -> None:
    """Make the directory belong to whom the identity is outside of any namespace.

    A tree that does so already is left alone; another identity may have served it before.
    """
    if os.geteuid() != 0 or not directory.exists():
        return
    kind, _, uid = identity.partition(":")
    owner = int(uid) if kind == "nobody" else 0
    if directory.stat().st_uid == owner:
        return
    for parent, _, files in os.walk(directory, topdown=False):
        for name in files:
            os.lchown(Path(parent) / name, owner, owner)
        os.lchown(parent, owner, owner)


def _has_name(uid: int) -> bool:
    try:
        pwd.getpwuid(uid)
    except KeyError:
        return False
    return True


def _any_ordinary_uid() -> int | None:
    return next((entry.pw_uid for entry in pwd.getpwall() if entry.pw_uid != 0), None)
