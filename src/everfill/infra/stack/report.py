"""What `everfill doctor` finds, as data; the command line prints it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from everfill.infra.stack.state import ServerName

__all__ = ["Finding", "Placement", "ServerReport", "Severity", "StackReport", "Standing"]


class Severity(StrEnum):
    """How much a finding matters."""

    NOTE = "note"
    """Worth knowing; it heals by itself or harms nothing."""
    WARNING = "warning"
    """It works now, and may soon not."""
    ERROR = "error"
    """Something does not work until somebody acts."""


class Placement(StrEnum):
    """Whose server it is."""

    EMBEDDED = "embedded"
    OUTSIDE = "outside"


class Standing(StrEnum):
    """How a server stands."""

    RUNNING = "running"
    STOPPED = "stopped"
    BROKEN = "broken"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is not as it should be.

    Attributes:
        code: Stable name, for programs.
        severity: How much it matters.
        problem: What is the matter, and where.
        fix: What to do about it.
        server: The server it keeps from working, if it is about one.
    """

    code: str
    severity: Severity
    problem: str
    fix: str
    server: ServerName | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerReport:
    """One server.

    Attributes:
        name: Which of the three.
        placement: Embedded or outside.
        state: Whether it runs, and answers.
        pid: Of the embedded server that runs.
        address: Where clients find it, without secrets; None while it is stopped.
        version: What it says of itself; of its program, while it is stopped.
        size_bytes: What it keeps on disk; None for an outside server.
        problem: Why it is broken.
        fix: What to do about that.
    """

    name: ServerName
    placement: Placement
    state: Standing
    pid: int | None
    address: str | None
    version: str | None
    size_bytes: int | None
    problem: str | None
    fix: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StackReport:
    """The whole stack, and what is wrong around it; times are ISO 8601 in UTC."""

    data_dir: Path
    logs_dir: Path
    disk_free_bytes: int | None
    supervisor_pid: int | None
    started_at: str | None
    servers: tuple[ServerReport, ...]
    findings: tuple[Finding, ...]

    @property
    def is_healthy(self) -> bool:
        """Whether everything works, or would at the next start."""
        has_error = any(finding.severity is Severity.ERROR for finding in self.findings)
        return not has_error and all(s.state is not Standing.BROKEN for s in self.servers)
