"""Where everything of one embedded stack lives, under one data directory."""

from __future__ import annotations

import os
import socket
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from everfill.kernel.errors import InvalidError

__all__ = ["SOCKET_PATH_BYTES_MAX", "StackPaths", "fits_socket", "socket_dir", "trim_log"]

SOCKET_PATH_BYTES_MAX: Final = 100
"""macOS allows 103 bytes for the path of a Unix socket, Linux 107; a margin for both."""

LOG_KEEP_BYTES: Final = 1_000_000
"""What each log keeps of its past when the stack starts or the log has grown too long."""

_LONGEST_SOCKET_NAME: Final = ".s.PGSQL.5432.lock"


@dataclass(frozen=True, slots=True, kw_only=True)
class StackPaths:
    """The names of one data directory; nothing is created before `create`."""

    data_dir: Path

    @property
    def run_dir(self) -> Path:
        """Locks, sockets and the published state; private to the user."""
        return self.data_dir / "run"

    @property
    def logs_dir(self) -> Path:
        """One log a server, and the supervisor's."""
        return self.data_dir / "logs"

    @property
    def wanted_dir(self) -> Path:
        """One empty file for each server that some open client needs."""
        return self.run_dir / "wanted"

    @property
    def clients_lock(self) -> Path:
        """Shared by every client; the supervisor stops once it can have it alone."""
        return self.run_dir / "clients.lock"

    @property
    def launch_lock(self) -> Path:
        """Held by the one client that is launching a supervisor."""
        return self.run_dir / "launch.lock"

    @property
    def supervisor_lock(self) -> Path:
        """Held by the one supervisor for as long as it lives."""
        return self.run_dir / "supervisor.lock"

    @property
    def state_file(self) -> Path:
        """What the supervisor publishes."""
        return self.run_dir / "stack.json"

    @property
    def ports_file(self) -> Path:
        """The ports of the last start, so that clients find their servers again after a crash."""
        return self.run_dir / "ports.json"

    @property
    def socket_dir_file(self) -> Path:
        """Names the short directory of the sockets, where the data directory's path is too long."""
        return self.run_dir / "socket_dir"

    @property
    def postgres_dir(self) -> Path:
        """Postgres's own data directory: the only thing here that cannot be rebuilt."""
        return self.data_dir / "postgres"

    @property
    def temporal_file(self) -> Path:
        """Temporal's database; rebuilt from Postgres when lost."""
        return self.data_dir / "temporal" / "temporal.db"

    def log(self, name: str) -> Path:
        """The log of one server, or of the supervisor."""
        return self.logs_dir / f"{name}.log"

    def create(self) -> None:
        """Make the directories, private to the user; what exists already is kept.

        Raises:
            InvalidError: `data_dir_unusable`, with the reason.
        """
        try:
            self.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            for path in (self.run_dir, self.logs_dir, self.wanted_dir, self.temporal_file.parent):
                path.mkdir(mode=0o700, exist_ok=True)
            self.run_dir.chmod(0o700)
        except OSError as error:
            message = f"The data directory {self.data_dir} cannot be used: {error.strerror}."
            hint = "Choose another with --data-dir, or make it writable for this user."
            raise InvalidError("data_dir_unusable", message, hint=hint) from error


def fits_socket(directory: Path) -> bool:
    """Whether the servers' sockets fit under the directory, as far as the path's length goes."""
    return len(os.fsencode(directory / _LONGEST_SOCKET_NAME)) <= SOCKET_PATH_BYTES_MAX


def socket_dir(paths: StackPaths) -> Path:
    """The directory of the sockets: `run`, or a short private one where `run` cannot hold them.

    The short one is remembered in `run/socket_dir`, so that a restart keeps every address.
    """
    if fits_socket(paths.run_dir) and _binds(paths.run_dir):
        return paths.run_dir
    if paths.socket_dir_file.is_file():
        known = Path(paths.socket_dir_file.read_text(encoding="utf-8"))
        if _is_private(known):
            return known
    made = Path(tempfile.mkdtemp(prefix="everfill-"))
    if not fits_socket(made):
        made.rmdir()
        made = Path(tempfile.mkdtemp(prefix="everfill-", dir="/tmp"))
    paths.socket_dir_file.write_text(str(made), encoding="utf-8")
    return made


def trim_log(path: Path, *, keep_bytes: int = LOG_KEEP_BYTES) -> None:
    """Cut the log down to its last lines, in place: whoever appends to it goes on appending."""
    if not path.exists() or path.stat().st_size <= keep_bytes:
        return
    with path.open("r+b") as log:
        log.seek(-keep_bytes, os.SEEK_END)
        tail = log.read()
        log.seek(0)
        log.write(tail[tail.find(b"\n") + 1 :])
        log.truncate()


def _binds(directory: Path) -> bool:
    """Whether the file system of the directory can hold a socket (some mounts cannot)."""
    probe = directory / ".probe"
    probe.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as listener:
        try:
            listener.bind(os.fspath(probe))
        except OSError:
            return False
    probe.unlink(missing_ok=True)
    return True


def _is_private(directory: Path) -> bool:
    try:
        found = directory.lstat()
    except OSError:
        return False
    private = stat.S_ISDIR(found.st_mode) and not found.st_mode & 0o077
    return private and found.st_uid == os.geteuid()
