"""`Transport`: the seam between the client and the protocol that it speaks with one server."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from penstock_client.client.request import InferRequest, Result
from penstock_client.reading.address import ServerAddress
from penstock_client.reading.views import ModelEntry, ModelMetadata, ModelStatistics, ServerMetadata


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """PEM files: the authorities that the server's certificate is checked against (those of the
    system by default), and the client's own certificate and key, where the server wants one.
    """

    ca_file: str | Path | None = None
    cert_file: str | Path | None = None
    key_file: str | Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """Options of every connection of a client: headers of each call, and TLS."""

    headers: Mapping[str, str] = field(default_factory=dict)
    tls: Tls = field(default_factory=Tls)


class Transport(Protocol):
    """The calls to one server; each raises a `ClientError`. Cancelling one cancels it there.

    `timeout` is in seconds, `None` for none.
    """

    address: ServerAddress

    async def infer(self, request: InferRequest, timeout: float | None) -> Result: ...

    def stream(
        self, request: InferRequest, timeout: float | None
    ) -> AsyncGenerator[Result, None]: ...

    async def live(self, timeout: float | None) -> bool: ...

    async def ready(self, timeout: float | None) -> bool: ...

    async def model_ready(self, model: str, version: str, timeout: float | None) -> bool: ...

    async def server_metadata(self, timeout: float | None) -> ServerMetadata: ...

    async def model_metadata(
        self, model: str, version: str, timeout: float | None
    ) -> ModelMetadata: ...

    async def model_config(
        self, model: str, version: str, timeout: float | None
    ) -> dict[str, Any]: ...

    async def statistics(
        self, model: str, version: str, timeout: float | None
    ) -> list[ModelStatistics]: ...

    async def index(self, ready_only: bool, timeout: float | None) -> list[ModelEntry]: ...

    async def load(
        self, model: str, parameters: Mapping[str, str | bytes], timeout: float | None
    ) -> None: ...

    async def unload(self, model: str, dependents: bool, timeout: float | None) -> None: ...

    async def aliases(self, timeout: float | None) -> list[dict[str, Any]]: ...

    async def alias(self, name: str, timeout: float | None) -> dict[str, Any]: ...

    async def set_alias(
        self, name: str, definition: Mapping[str, Any], timeout: float | None
    ) -> dict[str, Any]: ...

    async def remove_alias(self, name: str, timeout: float | None) -> None: ...

    async def promote_alias(
        self, name: str, plan: Mapping[str, Any], timeout: float | None
    ) -> dict[str, Any]: ...

    async def roll_back_alias(self, name: str, timeout: float | None) -> dict[str, Any]: ...

    async def register(self, name: str, key: str, size: int, timeout: float | None) -> None: ...

    async def unregister(self, name: str, timeout: float | None) -> None: ...

    async def close(self) -> None: ...
