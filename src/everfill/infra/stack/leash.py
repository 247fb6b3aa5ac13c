"""Start a server so that it cannot outlive its supervisor, and as somebody Postgres accepts.

Run as a script (`python -I -S leash.py IDENTITY SIGNAL PIPE -- PROGRAM...`): it prepares its own
process and becomes the program by `exec`, so the pid is the server's. It imports nothing of
Everfill, and little else, because it stands in every start's way.

IDENTITY, for a server that refuses to run as root:

- `plain`: as the caller.
- `namespace`: in a user namespace where the caller has the given ordinary uid; files stay the
  caller's. Also serves a caller whose uid has no name.
- `nobody`: as the given uid, keeping the capability to open the caller's files (for root where
  namespaces are forbidden, as in many containers).

SIGNAL is what the server gets when the supervisor dies: by the kernel (Linux), or by a small
watcher that reads PIPE, whose other end only the supervisor holds (PIPE is `-` for the kernel's
way). A supervisor that sees its server end writes a byte first, which sends the watcher home.
"""

from __future__ import annotations

import ctypes
import os
import signal
import struct
import sys
from typing import Final

PR_SET_PDEATHSIG: Final = 1
PR_SET_KEEPCAPS: Final = 8
PR_CAP_AMBIENT: Final = 47
PR_CAP_AMBIENT_RAISE: Final = 2
CLONE_NEWUSER: Final = 0x10000000
CAP_DAC_OVERRIDE: Final = 1
CAPABILITY_VERSION_3: Final = 0x20080522


def main(arguments: list[str]) -> None:
    """Become the program; returns only by an exception."""
    identity, death_signal, pipe, supervisor_pid, _, *program = arguments
    kind, _, uid = identity.partition(":")
    if kind == "namespace":
        enter_namespace(int(uid))
    elif kind == "nobody":
        become(int(uid))
    if pipe == "-":
        die_with_parent(int(death_signal), int(supervisor_pid))
    else:
        leave_watcher(int(pipe), int(death_signal))
    os.execv(program[0], program)  # noqa: S606  the supervisor built the list


def enter_namespace(uid: int) -> None:
    """Have the given uid and gid from here on, in a user namespace of our own."""
    own_uid, own_gid = os.geteuid(), os.getegid()
    _call("unshare", CLONE_NEWUSER)
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"{uid} {own_uid} 1")
    _write("/proc/self/gid_map", f"{uid} {own_gid} 1")


def become(uid: int) -> None:
    """Give root up for the given uid, but for the right to open any file."""
    _call("prctl", PR_SET_KEEPCAPS, 1, 0, 0, 0)
    os.setgroups([])
    os.setgid(uid)
    os.setuid(uid)
    mask = 1 << CAP_DAC_OVERRIDE
    header = struct.pack("=Ii", CAPABILITY_VERSION_3, 0)
    sets = struct.pack("=6I", mask, mask, mask, 0, 0, 0)
    _call("capset", ctypes.c_char_p(header), ctypes.c_char_p(sets))
    _call("prctl", PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_DAC_OVERRIDE, 0, 0)


def die_with_parent(death_signal: int, supervisor_pid: int) -> None:
    """Ask the kernel for the signal; after any change of identity, which would clear it."""
    _call("prctl", PR_SET_PDEATHSIG, death_signal, 0, 0, 0)
    if os.getppid() != supervisor_pid:
        sys.exit("the supervisor is gone already")


def leave_watcher(pipe: int, death_signal: int) -> None:
    """Leave a process behind that signals this one when the pipe ends without a byte."""
    server_pid = os.getpid()
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        os.close(pipe)
        return
    if os.fork():
        os._exit(0)
    os.setsid()
    if not os.read(pipe, 1):
        os.kill(server_pid, death_signal)
    os._exit(0)


def _write(path: str, content: str) -> None:
    with open(path, "w", encoding="ascii") as file:  # noqa: PTH123  pathlib costs 10 ms of start
        file.write(content)


def _as_word(argument: object) -> object:
    return ctypes.c_ulong(argument) if isinstance(argument, int) else argument


def _call(name: str, *arguments: object) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*map(_as_word, arguments)) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    main(sys.argv[1:])
