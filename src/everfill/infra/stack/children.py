"""Processes of the supervisor: started on a leash, stopped with growing insistence."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from everfill.infra.stack.binaries import server_environment

__all__ = ["PLAIN", "Child", "Program", "StopStep", "last_words", "run_to_end", "start", "tail"]

PLAIN: Final = "plain"
"""The identity of a program that may run as whoever the supervisor is."""

_LEASH: Final = Path(__file__).with_name("leash.py")
_TAIL_BYTES: Final = 4_000
_TIMED_OUT_CODE: Final = 124
_WORDS_CHARS_MAX: Final = 300
_CAUSE: Final = re.compile(r"\b(FATAL|PANIC|ERROR|[Ee]rror):")


@dataclass(frozen=True, slots=True, kw_only=True)
class StopStep:
    """A signal, and how long to wait for the end before the next step."""

    signal: signal.Signals
    patience_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What to start, and how it dies.

    Attributes:
        arguments: The program and its arguments.
        identity: As `leash` names it.
        death_signal: What it gets when the supervisor is gone.
        stop_steps: How the supervisor stops it; SIGKILL follows the last by itself.
        environment: What it gets beside the clean environment of every server.
    """

    arguments: tuple[str, ...]
    identity: str = PLAIN
    death_signal: signal.Signals = signal.SIGKILL
    stop_steps: tuple[StopStep, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict[str, str])


class Child:
    """One started program."""

    def __init__(self, process: Process, program: Program, leash_end: int | None) -> None:
        self._process = process
        self._program = program
        self._leash_end = leash_end

    @property
    def pid(self) -> int:
        """The program's own pid."""
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        """Whether it is known to be gone."""
        return self._process.returncode is not None

    async def wait(self) -> int:
        """Wait for the end; the exit code, or minus the signal."""
        code = await self._process.wait()
        self._let_go()
        return code

    async def stop(self) -> None:
        """Stop it, step by step; returns when it is gone."""
        for step in self._program.stop_steps:
            if await self._ends_after(step):
                return
        if not self.has_ended:
            self._process.kill()
        await self.wait()

    async def _ends_after(self, step: StopStep) -> bool:
        if not self.has_ended:
            self._process.send_signal(step.signal)
        try:
            await asyncio.wait_for(self.wait(), step.patience_seconds)
        except TimeoutError:
            return False
        return True

    def _let_go(self) -> None:
        """Send the watcher home: the program it guards is gone, and its pid may be reused."""
        if self._leash_end is None:
            return
        try:
            os.write(self._leash_end, b".")
        except BrokenPipeError:
            pass
        finally:
            os.close(self._leash_end)
            self._leash_end = None


async def start(program: Program, log: Path, *, by_pipe: bool | None = None) -> Child:
    """Start a program; its output goes to the end of the log.

    Args:
        program: What to start.
        log: The file for its output and errors.
        by_pipe: Hold it by a pipe and a watcher, rather than by the kernel; unset: where the
            kernel cannot (all but Linux).
    """
    needs_pipe = sys.platform != "linux" if by_pipe is None else by_pipe
    ends = os.pipe() if needs_pipe else None
    try:
        with log.open("ab") as output:
            process = await asyncio.create_subprocess_exec(
                *_leashed(program, ends[0] if ends else None),
                stdin=DEVNULL,
                stdout=output,
                stderr=STDOUT,
                env=server_environment() | dict(program.environment),
                pass_fds=ends[:1] if ends else (),
            )
    finally:
        if ends:
            os.close(ends[0])
    return Child(process, program, ends[1] if ends else None)


async def run_to_end(
    program: Program, *, text: str = "", timeout_seconds: float = 120.0, on_leash: bool = False
) -> tuple[int, str]:
    """Run a program that ends by itself; its exit code (124 for too late) and what it printed.

    `on_leash` is for what must not go on when the supervisor dies; it costs 25 ms.
    """
    needs_leash = program.identity != PLAIN or (on_leash and sys.platform == "linux")
    process = await asyncio.create_subprocess_exec(
        *(_leashed(program, None) if needs_leash else program.arguments),
        stdin=PIPE,
        stdout=PIPE,
        stderr=STDOUT,
        env=server_environment() | dict(program.environment),
    )
    try:
        printed, _ = await asyncio.wait_for(process.communicate(text.encode()), timeout_seconds)
    except TimeoutError:
        process.kill()
        await process.wait()
        return _TIMED_OUT_CODE, f"It did not end within {timeout_seconds:g} s."
    except asyncio.CancelledError:
        process.kill()
        await process.wait()
        raise
    return process.returncode or 0, printed.decode(errors="replace")


def tail(log: Path) -> str:
    """The last lines of a log."""
    try:
        content = log.read_bytes()
    except FileNotFoundError:
        return ""
    return content[-_TAIL_BYTES:].decode(errors="replace")


def last_words(printed: str) -> str:
    """Why a program ended, as far as what it printed tells: its last line that names an error."""
    lines = [line.strip() for line in printed.splitlines() if line.strip()]
    causes = [line for line in lines if _CAUSE.search(line)] or lines
    return causes[-1][-_WORDS_CHARS_MAX:] if causes else "it printed nothing"


def _leashed(program: Program, pipe: int | None) -> list[str]:
    own_pid, held_by = str(os.getpid()), "-" if pipe is None else str(pipe)
    death = str(int(program.death_signal))
    options = [program.identity, death, held_by, own_pid, "--"]
    return [sys.executable, "-I", "-S", str(_LEASH), *options, *program.arguments]
