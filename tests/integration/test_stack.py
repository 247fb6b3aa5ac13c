"""The embedded servers, started, shared, killed in every way, and found again."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sqlite3
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable
from contextlib import AsyncExitStack, closing
from pathlib import Path

import psutil
import psycopg
import pytest
from redis.asyncio import Redis

from everfill.infra.stack import Endpoints, open_stack
from everfill.infra.stack.binaries import find_binary
from everfill.infra.stack.children import Program, run_to_end, start
from everfill.infra.stack.client import stack_paths
from everfill.infra.stack.doctor import inspect_stack
from everfill.infra.stack.locks import is_held
from everfill.infra.stack.postgres_server import PostgresServer
from everfill.infra.stack.report import Placement, Standing
from everfill.infra.stack.runner import Runner
from everfill.infra.stack.state import ServerName, StackState, find_live_state
from everfill.kernel.config import Settings
from everfill.kernel.errors import EverfillError

pytestmark = pytest.mark.chaos

REDIS_ALONE = {
    "postgres": {"url": "postgresql://nobody@127.0.0.1:1/none"},
    "temporal": {"address": "127.0.0.1:1"},
}
POSTGRES_ALONE = {
    "redis": {"url": "redis://127.0.0.1:1"},
    "temporal": {"address": "127.0.0.1:1"},
}
TEMPORAL_ALONE = {
    "postgres": {"url": "postgresql://nobody@127.0.0.1:1/none"},
    "redis": {"url": "redis://127.0.0.1:1"},
}


async def test_two_clients_that_start_together_share_one_supervisor(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path / "data")

    async def join(stack: AsyncExitStack) -> Endpoints:
        return await stack.enter_async_context(open_stack(settings, linger_seconds=0.2))

    async with AsyncExitStack() as stack:
        first, second = await asyncio.gather(join(stack), join(stack))
        assert first == second
        assert len(supervisors_of(settings)) == 1
        assert await _answer_to(first.postgres_url, "select 1") == 1
        redis = Redis.from_url(first.redis_url)
        assert await redis.ping()
        await redis.aclose()
        report = await inspect_stack(settings)
        assert [server.state for server in report.servers] == [Standing.RUNNING] * 3
        assert report.is_healthy
        assert report.findings == ()
    await eventually(lambda: not processes_of(settings))
    assert not stack_paths(settings).state_file.exists()


async def test_the_stack_stays_while_another_client_is_there(tmp_path: Path) -> None:
    settings = settings_with(tmp_path, REDIS_ALONE)
    async with open_stack(settings, linger_seconds=0.0) as kept:
        pid = live_state(settings).supervisor_pid
        async with open_stack(settings) as joined:
            assert joined == kept
        assert live_state(settings).supervisor_pid == pid
        assert psutil.pid_exists(pid)
    await eventually(lambda: not processes_of(settings))


async def test_a_killed_client_does_not_keep_the_stack(tmp_path: Path) -> None:
    settings = settings_with(tmp_path, REDIS_ALONE)
    client = await run_script(CLIENT, str(settings.data_dir))
    assert client.stdout is not None
    assert await client.stdout.readline() == b"open\n"
    client.kill()
    await client.communicate()
    await eventually(lambda: not processes_of(settings))


async def test_a_killed_supervisor_leaves_no_orphan_and_loses_no_data(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path / "data")
    async with open_stack(settings, linger_seconds=30) as endpoints:
        await _run(endpoints.postgres_url, "create table kept as select 42 as answer")
    servers = [psutil.Process(pid) for pid in server_pids(settings)]
    assert len(servers) == 3
    os.kill(live_state(settings).supervisor_pid, signal.SIGKILL)
    await eventually(lambda: not processes_of(settings))
    await eventually(lambda: not any(is_running(server) for server in servers))
    report = await inspect_stack(settings)
    assert [finding.code for finding in report.findings] == ["supervisor_killed"]
    assert report.is_healthy
    async with open_stack(settings, linger_seconds=0.0) as again:
        assert again == endpoints
        assert await _answer_to(again.postgres_url, "select answer from kept") == 42
    await eventually(lambda: not processes_of(settings))


async def test_an_open_client_has_a_killed_supervisor_back_at_the_same_addresses(
    tmp_path: Path,
) -> None:
    settings = Settings(data_dir=tmp_path / "data")
    async with open_stack(settings, linger_seconds=0.0) as endpoints:
        killed = live_state(settings)
        os.kill(killed.supervisor_pid, signal.SIGKILL)
        await eventually(lambda: find_live_state(stack_paths(settings)) not in (None, killed))
        back = live_state(settings)
        assert {name: server.address for name, server in back.servers.items()} == {
            ServerName.POSTGRES: endpoints.postgres_url,
            ServerName.TEMPORAL: endpoints.temporal_address,
            ServerName.REDIS: endpoints.redis_url,
        }
        assert await _answer_to(endpoints.postgres_url, "select 1") == 1
    await eventually(lambda: not processes_of(settings))


async def test_a_supervisor_that_was_asked_to_stop_stays_away(tmp_path: Path) -> None:
    settings = settings_with(tmp_path, REDIS_ALONE)
    async with open_stack(settings, linger_seconds=30):
        os.kill(live_state(settings).supervisor_pid, signal.SIGTERM)
        await eventually(lambda: not processes_of(settings))
        await asyncio.sleep(0.7)  # longer than a guard's round: nothing may happen in it
        assert not processes_of(settings)


async def test_a_server_that_is_killed_comes_back_at_its_address(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path / "data")
    async with open_stack(settings, linger_seconds=0.0) as endpoints:
        await _run(endpoints.postgres_url, "create table kept as select 42 as answer")
        before = live_state(settings)
        for pid in server_pids(settings):
            os.kill(pid, signal.SIGKILL)
        await eventually(lambda: all_restarted(settings))
        after = live_state(settings)
        assert after.supervisor_pid == before.supervisor_pid
        for name, server in after.servers.items():
            assert server.address == before.servers[name].address
            assert server.pid != before.servers[name].pid
        assert await _answer_to(endpoints.postgres_url, "select answer from kept") == 42
        assert (await inspect_stack(settings)).is_healthy
    await eventually(lambda: not processes_of(settings))


async def test_a_pid_file_whose_pid_is_a_stranger_does_not_bar_the_start(tmp_path: Path) -> None:
    settings = settings_with(tmp_path, POSTGRES_ALONE)
    async with open_stack(settings, linger_seconds=0.0):
        pid_file = stack_paths(settings).postgres_dir / "postmaster.pid"
        left = pid_file.read_text("utf-8").splitlines()
    await eventually(lambda: not processes_of(settings))
    stranger = await run_script("input()")
    pid_file.write_text("\n".join([str(stranger.pid), *left[1:], ""]), "utf-8")
    socket = stack_paths(settings).run_dir / ".s.PGSQL.5432.lock"
    socket.write_text("\n".join([str(stranger.pid), *left[1:], ""]), "utf-8")
    codes = [finding.code for finding in (await inspect_stack(settings)).findings]
    assert codes == ["postgres_pid_file_stale"]
    async with open_stack(settings, linger_seconds=0.0) as endpoints:
        assert await _answer_to(endpoints.postgres_url, "select 1") == 1
    assert stranger.returncode is None
    await stranger.communicate(b"\n")
    await eventually(lambda: not processes_of(settings))


async def test_a_state_file_of_rubbish_does_not_bar_the_start(tmp_path: Path) -> None:
    settings = settings_with(tmp_path, REDIS_ALONE)
    stack_paths(settings).create()
    stack_paths(settings).state_file.write_bytes(b"\x00{not json")
    codes = [finding.code for finding in (await inspect_stack(settings)).findings]
    assert codes == ["state_corrupt"]
    async with open_stack(settings, linger_seconds=0.0) as endpoints:
        assert endpoints.redis_url.startswith("unix://")
    await eventually(lambda: not processes_of(settings))


async def test_a_damaged_temporal_database_is_set_aside(tmp_path: Path) -> None:
    settings = settings_with(tmp_path, TEMPORAL_ALONE)
    paths = stack_paths(settings)
    paths.create()
    paths.temporal_file.write_bytes(b"this is no database, not even a small one" * 100)
    codes = [finding.code for finding in (await inspect_stack(settings)).findings]
    assert codes == ["temporal_database_damaged"]
    async with open_stack(settings, linger_seconds=0.0):
        assert len(list(paths.temporal_file.parent.glob("temporal.db.broken-*"))) == 1
    await eventually(lambda: not processes_of(settings))


async def test_a_deleted_temporal_database_comes_back_empty(tmp_path: Path) -> None:
    settings = settings_with(tmp_path, TEMPORAL_ALONE)
    file = stack_paths(settings).temporal_file
    async with open_stack(settings, linger_seconds=0.0):
        before = live_state(settings)
        temporal = str(find_binary(ServerName.TEMPORAL).path)
        at = ("--address", before.servers[ServerName.TEMPORAL].address)
        create = ("operator", "namespace", "create", "--namespace", "lost", *at)
        assert (await run_to_end(Program(arguments=(temporal, *create))))[0] == 0
        assert namespaces_in(file) == {"default", "lost", "temporal-system"}
        for path in file.parent.iterdir():
            path.unlink()
        pid = before.servers[ServerName.TEMPORAL].pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        await eventually(lambda: all_restarted(settings))
        address = before.servers[ServerName.TEMPORAL].address
        assert live_state(settings).servers[ServerName.TEMPORAL].address == address
        assert namespaces_in(file) == {"default", "temporal-system"}
    await eventually(lambda: not processes_of(settings))


async def test_outside_servers_are_used_and_nothing_is_started(tmp_path: Path) -> None:
    settings = settings_with(
        tmp_path, POSTGRES_ALONE | {"postgres": {"url": "postgresql://u:secret@127.0.0.1:1/d"}}
    )
    async with open_stack(settings) as endpoints:
        assert endpoints.postgres_url == "postgresql://u:secret@127.0.0.1:1/d"
        assert endpoints.temporal_address == "127.0.0.1:1"
        assert endpoints.redis_url == "redis://127.0.0.1:1"
        assert "secret" not in repr(endpoints)
    assert not settings.data_dir.exists()
    report = await inspect_stack(settings)
    assert [server.placement for server in report.servers] == [Placement.OUTSIDE] * 3
    assert [server.state for server in report.servers] == [Standing.BROKEN] * 3
    assert all(server.problem and server.fix for server in report.servers)
    assert "secret" not in repr(report)
    assert not report.is_healthy


async def test_a_client_that_needs_more_has_it_started_beside_the_rest(tmp_path: Path) -> None:
    small, whole = settings_with(tmp_path, REDIS_ALONE), settings_with(tmp_path, {})
    async with open_stack(small, linger_seconds=0.0) as few:
        pid = live_state(small).supervisor_pid
        async with open_stack(whole) as all_of_them:
            assert all_of_them.redis_url == few.redis_url
            assert await _answer_to(all_of_them.postgres_url, "select 1") == 1
            assert live_state(small).supervisor_pid == pid
    await eventually(lambda: not processes_of(small))


async def test_a_data_directory_with_a_long_path_has_its_sockets_elsewhere(tmp_path: Path) -> None:
    settings = settings_with(tmp_path / ("long" * 30), REDIS_ALONE)
    async with open_stack(settings, linger_seconds=0.0) as endpoints:
        socket = Path(endpoints.redis_url.removeprefix("unix://"))
        assert not socket.is_relative_to(tmp_path)
        assert socket.parent.stat().st_mode & 0o077 == 0
    await eventually(lambda: not processes_of(settings))
    async with open_stack(settings, linger_seconds=0.0) as again:
        assert again == endpoints
    await eventually(lambda: not processes_of(settings))
    shutil.rmtree(socket.parent)


async def test_a_removed_data_directory_ends_its_stack(tmp_path: Path) -> None:
    settings = settings_with(tmp_path, REDIS_ALONE)
    async with open_stack(settings, linger_seconds=30):
        stack_paths(settings).run_dir.rename(tmp_path / "gone")
        await eventually(lambda: not processes_of(settings))


async def test_data_of_another_postgres_is_refused_with_the_reason(tmp_path: Path) -> None:
    settings = settings_with(tmp_path, POSTGRES_ALONE)
    paths = stack_paths(settings)
    paths.create()
    paths.postgres_dir.mkdir(mode=0o700)
    (paths.postgres_dir / "PG_VERSION").write_text("15\n", "utf-8")
    with pytest.raises(EverfillError, match="written by Postgres 15; this one is 18") as caught:
        async with open_stack(settings):
            pytest.fail("it must not open")
    assert caught.value.code == "postgres_version_mismatch"
    report = await inspect_stack(settings)
    broken = {server.name: server for server in report.servers}[ServerName.POSTGRES]
    assert (broken.state, broken.pid) == (Standing.BROKEN, None)
    assert "written by Postgres 15" in (broken.problem or "")
    await eventually(lambda: not is_held(paths.supervisor_lock))


async def test_a_data_directory_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file", "utf-8")
    settings = Settings(data_dir=tmp_path / "data")
    with pytest.raises(EverfillError) as caught:
        async with open_stack(settings):
            pytest.fail("it must not open")
    assert caught.value.code == "data_dir_unusable"
    codes = [finding.code for finding in (await inspect_stack(settings)).findings]
    assert codes == ["data_dir_unusable"]


@pytest.mark.skipif(os.geteuid() != 0 or sys.platform != "linux", reason="only root changes who")
@pytest.mark.parametrize("later", ["namespace:65534", "nobody:65534"])
async def test_root_serves_data_that_another_identity_made(tmp_path: Path, later: str) -> None:
    paths = stack_paths(settings_with(tmp_path, {}))
    paths.create()
    for identity in ("nobody:65534", later):
        server = PostgresServer(
            binary=find_binary(ServerName.POSTGRES),
            version="18.6",
            paths=paths,
            socket_dir=paths.run_dir,
            identity=identity,
            memory_bytes=8 * 1024**3,
        )
        runner = Runner(server, paths.log("postgres"), lambda: None)
        await runner.start()
        assert await _answer_to(server.address, "select 1") == 1
        owner = 65_534 if identity.startswith("nobody") else 0
        assert psutil.Process(runner.state.pid).uids().real == owner
        await runner.stop()


async def test_a_pipe_holds_a_server_where_the_kernel_cannot(tmp_path: Path) -> None:
    supervisor = await run_script(HOLDER, str(tmp_path / "log"))
    assert supervisor.stdout is not None
    held = psutil.Process(int(await supervisor.stdout.readline()))
    assert is_running(held)
    supervisor.kill()
    await supervisor.communicate()
    await eventually(lambda: not is_running(held))


async def test_a_pipe_lets_go_of_a_server_that_ended(tmp_path: Path) -> None:
    program = Program(arguments=(sys.executable, "-c", "print('done')"))
    child = await start(program, tmp_path / "log", by_pipe=True)
    assert await child.wait() == 0
    assert (tmp_path / "log").read_text("utf-8") == "done\n"
    await child.stop()


CLIENT = """
import asyncio, sys
from pathlib import Path
from everfill.infra.stack import open_stack
from everfill.kernel.config import Settings

async def main():
    outside = {"postgres": {"url": "postgresql://x@127.0.0.1:1/x"}}
    outside |= {"temporal": {"address": "127.0.0.1:1"}, "data_dir": Path(sys.argv[1])}
    async with open_stack(Settings.model_validate(outside), linger_seconds=0.0):
        print("open", flush=True)
        await asyncio.sleep(600)

asyncio.run(main())
"""


HOLDER = """
import asyncio, sys
from pathlib import Path
from everfill.infra.stack.children import Program, start

async def main():
    program = Program(arguments=(sys.executable, "-c", "import time; time.sleep(600)"))
    child = await start(program, Path(sys.argv[1]), by_pipe=True)
    print(child.pid, flush=True)
    await child.wait()

asyncio.run(main())
"""


async def run_script(script: str, *arguments: str) -> Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", script, *arguments), stdin=PIPE, stdout=PIPE
    )


def settings_with(tmp_path: Path, outside: dict[str, dict[str, str]]) -> Settings:
    return Settings.model_validate({"data_dir": tmp_path / "data", **outside})


def live_state(settings: Settings) -> StackState:
    state = find_live_state(stack_paths(settings))
    assert state is not None
    return state


def server_pids(settings: Settings) -> list[int]:
    return [server.pid for server in live_state(settings).servers.values() if server.pid]


def all_restarted(settings: Settings) -> bool:
    state = find_live_state(stack_paths(settings))
    return state is not None and all(s.restarts == 1 and s.pid for s in state.servers.values())


def processes_of(settings: Settings) -> list[psutil.Process]:
    """Every living process that names the data directory or works in it."""
    place, found = str(stack_paths(settings).data_dir), []
    for process in psutil.process_iter():
        try:
            names_it = any(place in argument for argument in process.cmdline())
            if (names_it or process.cwd().startswith(place)) and is_running(process):
                found.append(process)
        except psutil.Error:
            continue
    return found


def namespaces_in(file: Path) -> set[str]:
    with closing(sqlite3.connect(file)) as connection:
        return {name for (name,) in connection.execute("select name from namespaces")}


def supervisors_of(settings: Settings) -> list[psutil.Process]:
    return [p for p in processes_of(settings) if "everfill.infra.stack" in p.cmdline()]


def is_running(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


async def eventually(condition: Callable[[], bool]) -> None:
    """Wait for a condition; the bound only ends a test that has failed."""
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.02)


async def _answer_to(url: str, query: str) -> object:
    async with await psycopg.AsyncConnection.connect(url) as connection:
        row = await (await connection.execute(query.encode())).fetchone()
    assert row is not None
    return row[0]


async def _run(url: str, statement: str) -> None:
    async with await psycopg.AsyncConnection.connect(url) as connection:
        await connection.execute(statement.encode())
