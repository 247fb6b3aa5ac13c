"""Ask a server, embedded or outside, whether it answers, and as what."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit, urlunsplit

import psycopg
from redis.asyncio import Redis
from redis.exceptions import RedisError

from everfill.infra.stack.binaries import find_binary, server_environment
from everfill.infra.stack.state import ServerName
from everfill.kernel.config import TemporalSettings
from everfill.kernel.errors import UnavailableError

__all__ = [
    "_ANSWER_SECONDS",
    "Answer",
    "ask_postgres",
    "ask_redis",
    "ask_temporal",
    "without_secret",
]

_ANSWER_SECONDS: Final = 5
_VERSION_BASE: Final = 10_000
_PASSWORD_PARAMETER: Final = re.compile(r"(password=)('[^']*'|[^&\s]*)", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a server said: its version, or why there is none."""

    version: str | None = None
    problem: str | None = None


async def ask_postgres(url: str) -> Answer:
    """Connect as a client would."""
    try:
        connection = await psycopg.AsyncConnection.connect(url, connect_timeout=_ANSWER_SECONDS)
    except psycopg.Error as error:
        return Answer(problem=_one_line(str(error)))
    async with connection:
        number = connection.info.server_version
    return Answer(version=f"{number // _VERSION_BASE}.{number % _VERSION_BASE}")


async def ask_redis(url: str) -> Answer:
    """Ask for the server's own description."""
    try:
        client = Redis.from_url(  # pyright: ignore[reportUnknownMemberType]  untyped keywords
            url, socket_connect_timeout=_ANSWER_SECONDS, socket_timeout=_ANSWER_SECONDS
        )
    except ValueError as error:
        return Answer(problem=str(error))
    try:
        facts = await client.info("server")  # pyright: ignore[reportUnknownMemberType]  the same
    except (RedisError, OSError) as error:
        return Answer(problem=_one_line(str(error)))
    finally:
        await client.aclose()
    return Answer(version=str(facts.get("valkey_version") or facts.get("redis_version")))


async def ask_temporal(settings: TemporalSettings, address: str) -> Answer:
    """Ask through Temporal's own program, or only knock where that is not installed."""
    try:
        program = str(find_binary(ServerName.TEMPORAL).path)
    except UnavailableError:
        return await _knock(address)
    flags = ["--address", address, "--output", "json", "--disable-config-file"]
    secret = {"TEMPORAL_API_KEY": settings.api_key.get_secret_value()} if settings.api_key else {}
    process = await asyncio.create_subprocess_exec(
        *(program, "operator", "cluster", "system", *flags),
        *(("--tls",) if settings.tls else ()),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=server_environment() | secret,
    )
    try:
        printed, errors = await asyncio.wait_for(process.communicate(), _ANSWER_SECONDS)
    except TimeoutError:
        process.kill()
        await process.wait()
        return Answer(problem=f"No answer within {_ANSWER_SECONDS} s.")
    if process.returncode != 0:
        return Answer(problem=_one_line(errors.decode(errors="replace")).removeprefix("Error: "))
    return Answer(version=json.loads(printed)["serverVersion"])


def without_secret(address: str) -> str:
    """The address with its password masked, for printing."""
    address = _PASSWORD_PARAMETER.sub(r"\1***", address)
    parts = urlsplit(address)
    if not parts.password:
        return address
    user, host = parts.username or "", parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=f"{user}:***@{host}"))


async def _knock(address: str) -> Answer:
    host, _, port = address.rpartition(":")
    try:
        _, writer = await asyncio.wait_for(
            asyncio.open_connection(host, int(port)), _ANSWER_SECONDS
        )
    except (OSError, ValueError) as error:
        return Answer(problem=_one_line(str(error)) or f"No answer within {_ANSWER_SECONDS} s.")
    writer.close()
    return Answer(version=None)


def _one_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0][:300] if lines else "It closed the connection."
