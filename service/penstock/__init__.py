"""Penstock: an inference server for many models, asyncio and gRPC first."""

__version__ = "0.1.0"
