"""The embedded Postgres: one database, on a socket only this user can reach."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path
from typing import Final
from urllib.parse import quote

import structlog

from everfill.infra.stack.binaries import Binary
from everfill.infra.stack.children import PLAIN, Child, Program, StopStep, last_words, run_to_end
from everfill.infra.stack.identity import hand_over
from everfill.infra.stack.paths import StackPaths
from everfill.infra.stack.postgres_recovery import clear_former_life
from everfill.infra.stack.state import ServerName
from everfill.kernel.errors import InvalidError, UnavailableError

__all__ = ["DATABASE", "PORT", "PostgresServer", "configuration", "data_version"]

_log = structlog.get_logger(__name__)

DATABASE: Final = "everfill"
PORT: Final = 5432
"""Names the socket; no port is opened."""
_USER: Final = "everfill"
_STATUS_LINE: Final = 7
_SHARED_BUFFERS_BYTES_MAX: Final = 256 * 1024**2
_SHARED_BUFFERS_SHARE: Final = 8


class PostgresServer:
    """Postgres.

    Args:
        binary: The program.
        version: What the program says of itself, such as `18.6`.
        paths: The data directory.
        socket_dir: A private directory whose path is short enough for a socket.
        identity: As whom it runs, as `leash` names it.
        memory_bytes: What the machine has.
    """

    name = ServerName.POSTGRES
    ready_seconds_max = 600.0  # crash recovery replays up to 4 GB of log

    def __init__(
        self,
        *,
        binary: Binary,
        version: str,
        paths: StackPaths,
        socket_dir: Path,
        identity: str,
        memory_bytes: int,
    ) -> None:
        self._binary = binary
        self._version = version
        self._paths = paths
        self._socket_dir = socket_dir
        self._identity = identity
        self._memory_bytes = memory_bytes

    @property
    def version(self) -> str:
        """What the program says of itself."""
        return self._version

    @property
    def address(self) -> str:
        """A URL for Postgres clients."""
        host = quote(str(self._socket_dir), safe="")
        return f"postgresql://{_USER}@/{DATABASE}?host={host}&port={PORT}"

    async def prepare(self) -> Program:
        """Make the cluster where there is none, and clear what a killed server left.

        Raises:
            InvalidError: `postgres_version_mismatch`, where another major version wrote the data.
        """
        data_dir = self._paths.postgres_dir
        if data_dir.exists():
            self._check_version()
            await clear_former_life(data_dir, self._socket_dir, PORT)
        else:
            await self._make_cluster()
        (data_dir / "everfill.conf").write_text(configuration(self._memory_bytes), "utf-8")
        hand_over(data_dir, self._identity)
        return self._server_program()

    async def is_ready(self, child: Child) -> bool:
        """Whether it says so in its pid file, and then lets a client into the database."""
        try:
            lines = (self._paths.postgres_dir / "postmaster.pid").read_text("utf-8").splitlines()
        except OSError:
            return False
        is_ours = len(lines) > _STATUS_LINE and lines[0].strip() == str(child.pid)
        if not is_ours or lines[_STATUS_LINE].strip() != "ready":
            return False
        code, _ = await self._ask("psql", "-X", "-w", "-d", DATABASE, "-c", "")
        if code != 0:  # someone dropped it
            code, _ = await self._ask("createdb", "-w", DATABASE)
        return code == 0

    def heed(self, printed: str) -> None:
        """Nothing to learn: `prepare` looks at everything anew."""
        del printed

    def _check_version(self) -> None:
        found, own = data_version(self._paths.postgres_dir), self._version.partition(".")[0]
        if found == own:
            return
        where = self._paths.postgres_dir
        message = f"{where} was written by Postgres {found or '(unknown)'}; this one is {own}."
        hint = "Dump it with the version that wrote it, or choose another --data-dir."
        raise InvalidError("postgres_version_mismatch", message, hint=hint)

    async def _make_cluster(self) -> None:
        """Make it beside its place and rename it, so that a half-made one is never met."""
        draft = self._paths.data_dir / "postgres.draft"
        shutil.rmtree(draft, ignore_errors=True)
        _log.info("postgres_cluster_creating", directory=str(self._paths.postgres_dir))
        await self._run_own("initdb", *_initdb_flags(draft))
        single = ("--single", "-D", str(draft), "postgres")
        await self._run_own("postgres", *single, text=f"create database {DATABASE}\n")
        hand_over(draft, PLAIN)
        conf = draft / "postgresql.conf"
        conf.write_text("# Defaults of Everfill; ALTER SYSTEM overrules them.\n", "utf-8")
        with conf.open("a", encoding="utf-8") as file:
            file.write("include = 'everfill.conf'\n")
        draft.rename(self._paths.postgres_dir)

    async def _run_own(self, name: str, *arguments: str, text: str = "") -> None:
        path = str(self._binary.sibling(name))
        program = Program(arguments=(path, *arguments), identity=self._identity)
        code, printed = await run_to_end(program, text=text, on_leash=True)
        if code != 0:
            message = f"{name} failed with code {code}: {last_words(printed)}"
            hint = f"See whether {self._paths.data_dir} is writable and its disk has room."
            raise UnavailableError("postgres_cluster_failed", message, hint=hint)

    async def _ask(self, name: str, *arguments: str) -> tuple[int, str]:
        place = ("-h", str(self._socket_dir), "-p", str(PORT), "-U", _USER)
        return await run_to_end(
            Program(arguments=(str(self._binary.sibling(name)), *place, *arguments)),
            timeout_seconds=30.0,
        )

    def _server_program(self) -> Program:
        settings = {
            "listen_addresses": "",
            "port": str(PORT),
            "unix_socket_directories": _quoted(self._socket_dir),
            "unix_socket_permissions": "0700",
            "fsync": "on",
            "logging_collector": "off",
            "log_destination": "stderr",
        }
        flags = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        return Program(
            arguments=(str(self._binary.path), "-D", str(self._paths.postgres_dir), *flags),
            identity=self._identity,
            death_signal=signal.SIGINT,  # a fast, clean shutdown
            stop_steps=(
                StopStep(signal=signal.SIGINT, patience_seconds=30.0),
                StopStep(signal=signal.SIGQUIT, patience_seconds=5.0),
            ),
        )


def configuration(memory_bytes: int) -> str:
    """The settings for a queue that lives in tables: rewritten at each start."""
    buffers = min(_SHARED_BUFFERS_BYTES_MAX, memory_bytes // _SHARED_BUFFERS_SHARE)
    settings = {
        "shared_buffers": f"{buffers // 1024**2}MB",
        "max_connections": "200",
        "max_wal_size": "4GB",
        "min_wal_size": "256MB",
        "wal_compression": "pglz",
        "wal_buffers": "16MB",
        "checkpoint_timeout": "15min",
        "checkpoint_completion_target": "0.9",
        "log_checkpoints": "off",
        "autovacuum_naptime": "5s",
        "autovacuum_vacuum_cost_limit": "2000",
        "random_page_cost": "1.1",
        "jit": "off",
        "timezone": "UTC",
        "log_timezone": "UTC",
    }
    lines = [f"{name} = '{value}'" for name, value in settings.items()]
    return "\n".join(["# Rewritten at each start; use ALTER SYSTEM for your own.", *lines, ""])


def data_version(postgres_dir: Path) -> str | None:
    """The major version that wrote the data, or None where there is no telling."""
    try:
        return (postgres_dir / "PG_VERSION").read_text("utf-8").strip()
    except OSError:
        return None


def _initdb_flags(directory: Path) -> tuple[str, ...]:
    return (
        *("-D", str(directory), "-U", _USER, "--encoding", "UTF8", "--no-instructions"),
        *("--locale-provider", "builtin", "--builtin-locale", "C.UTF-8"),
        *("--auth-local", "trust", "--auth-host", "reject"),
    )


def _quoted(directory: Path) -> str:
    """A list of one directory, as Postgres reads lists."""
    return '"' + str(directory).replace('"', '""') + '"'
