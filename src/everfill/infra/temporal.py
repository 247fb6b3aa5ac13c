"""The connection to Temporal: an address, a namespace, and where needed TLS and a key."""

from __future__ import annotations

from typing import Final

from temporalio.client import Client
from temporalio.runtime import Runtime
from temporalio.service import RetryConfig, RPCError

from everfill.kernel.config import TemporalSettings
from everfill.kernel.errors import UnavailableError

__all__ = ["connect_temporal"]

_PATIENCE_MILLIS: Final = 5_000  # a restarting server is back within this, or reported


async def connect_temporal(
    settings: TemporalSettings, address: str, *, runtime: Runtime | None = None
) -> Client:
    """A client of the server at an address.

    Args:
        settings: The namespace, and where needed TLS and a key.
        address: `host:port`.
        runtime: Of Temporal's core, where its logs are wanted otherwise than by default.

    Raises:
        UnavailableError: `temporal_unavailable`.
    """
    try:
        return await Client.connect(
            address,
            namespace=settings.namespace,
            api_key=settings.api_key.get_secret_value() if settings.api_key else None,
            tls=settings.tls,
            runtime=runtime,
            retry_config=RetryConfig(max_elapsed_time_millis=_PATIENCE_MILLIS),
        )
    except (RPCError, RuntimeError) as error:
        raise UnavailableError(
            "temporal_unavailable",
            f"Temporal does not answer at {address}: {error}.",
            hint="Run `everfill doctor`, or correct EVERFILL_TEMPORAL__ADDRESS.",
        ) from error
