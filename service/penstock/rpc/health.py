"""`grpc.health.v1.Health`, answered from the server's readiness (contract G-22)."""

from __future__ import annotations

from google.protobuf.message import Message

from penstock.core.errors import InferenceError
from penstock.models.server import InferenceServer
from penstock.protocol import health_pb2 as pb
from penstock.rpc.context import Method, RpcContext, Service

NAME = "grpc.health.v1.Health"


class HealthServicer:
    """The standard health service; whatever `service` is asked for, the server answers."""

    def __init__(self, server: InferenceServer) -> None:
        self._server = server

    def service(self) -> Service:
        """The methods by name, for a transport to serve."""
        check = Method("Check", pb.HealthCheckRequest, pb.HealthCheckResponse, self.Check)
        return Service(NAME, [check])

    async def Check(self, _: pb.HealthCheckRequest, __: RpcContext) -> Message:
        statuses = pb.HealthCheckResponse.ServingStatus
        try:
            ready = await self._server.ready()
        except InferenceError:
            ready = False
        return pb.HealthCheckResponse(status=statuses.SERVING if ready else statuses.NOT_SERVING)
