"""The pure parts of the embedded stack."""

from __future__ import annotations

import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from everfill.infra.stack.children import last_words
from everfill.infra.stack.client import embedded_servers
from everfill.infra.stack.identity import candidates
from everfill.infra.stack.locks import FileLock, is_held
from everfill.infra.stack.paths import StackPaths, fits_socket, socket_dir, trim_log
from everfill.infra.stack.postgres_recovery import is_postmaster_of
from everfill.infra.stack.postgres_server import configuration
from everfill.infra.stack.probes import without_secret
from everfill.infra.stack.state import (
    STATE_VERSION,
    ServerName,
    ServerState,
    ServerStatus,
    StackState,
    find_live_state,
    parse_state,
    write_state,
)
from everfill.infra.stack.temporal_server import is_readable_database, read_port, set_aside
from everfill.kernel.config import Settings
from everfill.kernel.errors import InvalidError

GIGABYTE = 1024**3
STATE = StackState(
    version=STATE_VERSION,
    supervisor_pid=os.getpid(),
    started_at="2026-11-30T12:00:00+00:00",
    servers={
        ServerName.REDIS: ServerState(
            status=ServerStatus.RUNNING,
            address="unix:///run/redis.sock",
            version="9.1.2",
            pid=7,
            restarts=0,
            problem=None,
        )
    },
)


@pytest.fixture
def paths(tmp_path: Path) -> StackPaths:
    made = StackPaths(data_dir=tmp_path / "data")
    made.create()
    return made


def test_the_run_directory_is_private_even_where_it_was_not(tmp_path: Path) -> None:
    (tmp_path / "data" / "run").mkdir(parents=True, mode=0o755)
    paths = StackPaths(data_dir=tmp_path / "data")
    paths.create()
    assert paths.run_dir.stat().st_mode & 0o777 == 0o700


def test_a_data_directory_below_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InvalidError, match="cannot be used: Not a directory") as caught:
        StackPaths(data_dir=tmp_path / "file" / "data").create()
    assert caught.value.code == "data_dir_unusable"


def test_a_socket_fits_by_its_bytes_not_its_characters() -> None:
    assert fits_socket(Path("/" + "a" * 80))
    assert not fits_socket(Path("/" + "a" * 82))
    assert not fits_socket(Path("/" + "é" * 41))


def test_a_short_path_keeps_its_sockets_beside_the_data(
    paths: StackPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("everfill.infra.stack.paths.SOCKET_PATH_BYTES_MAX", 4_096)
    monkeypatch.setattr("everfill.infra.stack.paths._binds", lambda _: True)
    assert socket_dir(paths) == paths.run_dir


def test_a_socket_directory_open_to_others_is_not_used_again(
    paths: StackPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("everfill.infra.stack.paths._binds", lambda _: False)
    first = socket_dir(paths)
    assert socket_dir(paths) == first
    first.chmod(0o755)
    second = socket_dir(paths)
    assert second != first
    first.rmdir()
    second.rmdir()


def test_a_long_log_keeps_its_last_whole_lines(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"first line\nsecond line\nthird\n")
    trim_log(log, keep_bytes=12)
    assert log.read_bytes() == b"third\n"


def test_a_short_or_missing_log_is_left_alone(tmp_path: Path) -> None:
    trim_log(tmp_path / "none")
    (tmp_path / "log").write_bytes(b"line\n")
    trim_log(tmp_path / "log", keep_bytes=5)
    assert (tmp_path / "log").read_bytes() == b"line\n"


def test_a_log_can_be_trimmed_under_its_writer(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("ab", buffering=0) as writer:
        writer.write(b"old\n" * 100)
        trim_log(log, keep_bytes=6)
        writer.write(b"new\n")
    assert log.read_bytes() == b"old\nnew\n"


def test_a_lock_is_held_alone_or_together(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    assert not is_held(path)
    assert not path.exists()
    first, second = FileLock(path), FileLock(path)
    assert first.try_shared()
    assert second.try_shared()
    assert not is_held(path)
    assert not first.try_exclusive()
    second.close()
    assert first.try_exclusive()
    assert is_held(path)
    first.unlock()
    assert not is_held(path)
    first.close()


def test_a_lock_notices_that_its_file_was_replaced(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    lock = FileLock(path)
    assert lock.is_current()
    path.rename(tmp_path / "moved")
    assert not lock.is_current()
    path.touch()
    assert not lock.is_current()
    lock.close()


def test_a_published_state_reads_back_while_its_supervisor_lives(paths: StackPaths) -> None:
    write_state(paths, STATE)
    assert parse_state(paths.state_file.read_bytes()) == STATE
    assert find_live_state(paths) is None
    lock = FileLock(paths.supervisor_lock)
    assert lock.try_exclusive()
    assert find_live_state(paths) == STATE
    lock.close()
    assert find_live_state(paths) is None


@pytest.mark.parametrize(
    "content", [b"", b"{}", b"\xff\xfe", b"[1, 2]", b'{"version": 1, "supervisor_pid": "x"}']
)
def test_a_damaged_state_is_no_state(content: bytes) -> None:
    assert parse_state(content) is None


def test_a_state_of_another_version_is_no_state() -> None:
    facts = {"version": 2, "supervisor_pid": 1, "started_at": "", "servers": {}}
    assert parse_state(json.dumps(facts).encode()) is None


def test_servers_are_embedded_unless_the_settings_place_them_outside() -> None:
    assert embedded_servers(Settings()) == set(ServerName)
    settings = Settings.model_validate({"temporal": {"address": "temporal:7233"}})
    assert embedded_servers(settings) == {ServerName.POSTGRES, ServerName.REDIS}


def test_an_ordinary_user_needs_no_other_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("everfill.infra.stack.identity._has_name", lambda _: True)
    assert candidates(1_000, "linux") == ["plain"]
    assert candidates(501, "darwin") == ["plain"]


def test_root_becomes_somebody_postgres_accepts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("everfill.infra.stack.identity._has_name", lambda _: True)
    assert candidates(0, "linux") == ["namespace:65534", "nobody:65534"]
    assert candidates(0, "darwin") == []


def test_a_nameless_user_borrows_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("everfill.infra.stack.identity._has_name", lambda uid: uid != 12_345)
    assert candidates(12_345, "linux") == ["namespace:65534"]


def test_the_cause_of_an_end_is_the_last_line_that_names_an_error() -> None:
    printed = "x\nFATAL:  disk full\nSTATEMENT:  vacuum\n\nchild process ended\n"
    assert last_words(printed) == "FATAL:  disk full"
    assert last_words("one\ntwo\n") == "two"
    assert last_words("\n") == "it printed nothing"


def test_only_a_postgres_of_this_very_directory_is_its_postmaster() -> None:
    data_dir = Path("/data/postgres")
    assert is_postmaster_of(["/opt/bin/postgres", "-D", "/data/postgres", "-c", "x=y"], data_dir)
    assert not is_postmaster_of(["/opt/bin/postgres", "-D", "/data/other"], data_dir)
    assert not is_postmaster_of(["/usr/bin/vim", "-D", "/data/postgres"], data_dir)
    assert not is_postmaster_of(["postgres: checkpointer "], data_dir)
    assert not is_postmaster_of([], data_dir)


def test_shared_buffers_leave_a_small_machine_its_memory() -> None:
    assert "shared_buffers = '256MB'" in configuration(16 * GIGABYTE).splitlines()
    assert "shared_buffers = '64MB'" in configuration(GIGABYTE // 2).splitlines()


def test_a_database_file_is_told_from_rubbish(tmp_path: Path) -> None:
    file = tmp_path / "temporal.db"
    assert is_readable_database(file)
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("create table t (n integer)")
    assert is_readable_database(file)
    file.write_bytes(b"rubbish" * 1_000)
    assert not is_readable_database(file)


def test_a_file_set_aside_takes_its_journals_along_and_replaces_the_last(tmp_path: Path) -> None:
    file = tmp_path / "temporal.db"
    assert set_aside(file) is None
    for name in ("temporal.db", "temporal.db-wal", "temporal.db-shm", "temporal.db.broken-1"):
        (tmp_path / name).touch()
    moved = set_aside(file)
    assert moved is not None
    assert [path.name for path in tmp_path.iterdir()] == [moved.name]
    assert moved.name.startswith("temporal.db.broken-")


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"temporal": "x"}', '{"temporal": 80}', '{"temporal": 70000}']
)
def test_a_port_is_remembered_only_if_it_can_be_one(tmp_path: Path, content: str) -> None:
    (tmp_path / "ports.json").write_text(content, "utf-8")
    assert read_port(tmp_path / "ports.json") is None


def test_a_remembered_port_is_read_back(tmp_path: Path) -> None:
    assert read_port(tmp_path / "ports.json") is None
    (tmp_path / "ports.json").write_text('{"temporal": 7233}', "utf-8")
    assert read_port(tmp_path / "ports.json") == 7_233


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("postgresql://u:secret@db:5432/x?a=b", "postgresql://u:***@db:5432/x?a=b"),
        ("redis://:secret@bus", "redis://:***@bus"),
        (
            "postgresql://db/x?user=u&password=secret&a=b",
            "postgresql://db/x?user=u&password=***&a=b",
        ),
        ("host=db password='se cret' user=u", "host=db password=*** user=u"),
        ("redis://bus:6379/0", "redis://bus:6379/0"),
        ("temporal:7233", "temporal:7233"),
    ],
)
def test_an_address_is_printed_without_its_password(address: str, expected: str) -> None:
    assert without_secret(address) == expected
