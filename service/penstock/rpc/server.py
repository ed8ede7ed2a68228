"""Opens the gRPC endpoint on the transport that the settings choose."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from penstock.core.countdown import Countdown
from penstock.models.server import InferenceServer
from penstock.rpc.health import HealthServicer
from penstock.rpc.servicer import InferenceServicer
from penstock.rpc.transport_grpcio import open_grpcio
from penstock.settings import GrpcSettings

logger = logging.getLogger(__name__)


@asynccontextmanager
async def open_grpc(
    server: InferenceServer, settings: GrpcSettings, grace: Countdown
) -> AsyncIterator[int]:
    """Serve gRPC; yields the port. Raises `OSError` when the address is taken."""
    services = [InferenceServicer(server).service(), HealthServicer(server).service()]
    async with open_grpcio(services, settings, grace) as port:
        logger.info("Started GRPCInferenceService at %s:%s", settings.address, port)
        yield port
