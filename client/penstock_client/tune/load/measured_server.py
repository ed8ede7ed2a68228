"""`MeasuredServer`: the seam between loads and servers, of our own or of others."""

from __future__ import annotations

from typing import Any, Protocol

from penstock_client.perf.wire.endpoint import Endpoint
from penstock_client.reading.address import Address


class MeasuredServer(Protocol):
    """A server that has loaded a variant; `pid` is 0 where it runs elsewhere."""

    @property
    def pid(self) -> int: ...

    @property
    def metrics(self) -> Address: ...

    @property
    def memory_without_model(self) -> int: ...

    def endpoint(self, name: str) -> Endpoint:
        """The endpoint of `grpc` or `http`."""

    def config(self, model: str) -> dict[str, Any]:
        """A model's configuration, completed by the server; raises `VariantError`."""

    def check(self) -> None:
        """Raises `VariantError` or `ServerGoneError` if it has ended."""

    def memory(self) -> int | None:
        """Bytes of memory of all its processes, if they can be seen."""
