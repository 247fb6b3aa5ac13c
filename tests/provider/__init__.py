"""A model provider of our own on loopback, for tests and benchmarks."""

from .server import ProviderServer, Reply

__all__ = ["ProviderServer", "Reply"]
