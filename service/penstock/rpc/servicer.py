"""The methods of `inference.GRPCInferenceService`, on any transport."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable

from google.protobuf.message import Message

from penstock.core.body_quota import BodyQuota
from penstock.core.errors import UnsupportedError
from penstock.core.log.log_fields import name_request
from penstock.core.request import CALL_ID, RequestScope
from penstock.header_forward import HeaderForward
from penstock.models.config.pbtxt import config_to_message
from penstock.models.serving.answers import TensorMetadata
from penstock.models.serving.served_model import ServedModel
from penstock.protocol import grpc_service_pb2 as pb
from penstock.rpc.call_record import CallRecord, Explanations
from penstock.rpc.context import (
    CompletionCallbacks,
    Method,
    RpcContext,
    Service,
    Unary,
    coroutine_handler,
    method_name,
)
from penstock.rpc.control_messages import (
    decode_log,
    decode_trace,
    encode_log,
    encode_statistics,
    encode_trace,
    forwarded,
    load_parameters,
    parse_load,
    unload_dependents,
    unload_versions,
)
from penstock.rpc.infer_stream import InferStream
from penstock.rpc.messages import InferMessage, InferReader, decode_request
from penstock.rpc.orca import Reporting, add_report
from penstock.rpc.responses import ResponseEncoder, UnaryAnswer
from penstock.rpc.shared_memory import SharedMemoryMethods
from penstock.rpc.status import replace_surrogates
from penstock.rpc.typed_contents import ContentLimits
from penstock.server.answers import RESIDENT
from penstock.server.control_policy import ControlPolicy
from penstock.server.load_meter import FORMAT
from penstock.server.server import InferenceServer
from penstock.tracing.explain import EXPLAIN

NAME = "inference.GRPCInferenceService"


class InferenceServicer:
    """Handlers of the service: each decodes a message, calls the server, encodes the result.

    The `policy` is that of the server unless it is given.
    """

    def __init__(
        self,
        server: InferenceServer,
        forward: HeaderForward | None = None,
        policy: ControlPolicy | None = None,
        quota: BodyQuota | None = None,
    ) -> None:
        self._server = server
        self._policy = policy or server.control_policy
        self._forward = forward
        limits = ContentLimits(elements=server.most_elements)
        self._reader = InferReader(limits, quota, server.messages)
        self._encoder = ResponseEncoder()
        self._memory = SharedMemoryMethods(server.regions)

    def service(self) -> Service:
        """The service with its methods."""
        unary = [
            self.ServerLive,
            self.ServerReady,
            self.ModelReady,
            self.ServerMetadata,
            self.ModelMetadata,
            self.ModelConfig,
            self.ModelStatistics,
            self.RepositoryIndex,
            self.RepositoryModelUnload,
            self.TraceSetting,
            self.LogSettings,
            self._memory.SystemSharedMemoryStatus,
            self._memory.SystemSharedMemoryRegister,
            self._memory.SystemSharedMemoryUnregister,
            self._memory.CudaSharedMemoryStatus,
            self._memory.CudaSharedMemoryRegister,
            self._memory.CudaSharedMemoryUnregister,
        ]
        methods = [_method(method_name(handler), handler) for handler in unary]
        load = Method(
            "RepositoryModelLoad",
            pb.RepositoryModelLoadRequest,
            pb.RepositoryModelLoadResponse,
            self.RepositoryModelLoad,
            parse=parse_load,
            unbounded=self._server.explicit_control,
        )
        return Service(NAME, [*methods, load, *self._inference_methods()])

    def _inference_methods(self) -> list[Method]:
        """The methods whose requests hold tensors, with a parser of their own."""
        infer = Method(
            "ModelInfer",
            pb.ModelInferRequest,
            pb.ModelInferResponse,
            coroutine_handler(self.ModelInfer),
            parse=self._reader.read,
            reserve=self._reader.reserve,
            eager=True,
            start=self.ModelInfer,
            unbounded=True,
        )
        stream = Method(
            "ModelStreamInfer",
            pb.ModelInferRequest,
            pb.ModelStreamInferResponse,
            self.ModelStreamInfer,
            client_streaming=True,
            server_streaming=True,
            parse=self._reader.read,
            reserve=self._reader.reserve,
            unbounded=True,
        )
        return [infer, stream]

    # -- inference ----------------------------------------------------------------------------

    def ModelInfer(
        self, message: InferMessage, context: RpcContext, callbacks: CompletionCallbacks
    ) -> Callable[[], None] | None:
        """Answer by `callbacks`; returns a callback to cancel the request."""
        head = message.head
        model = self._server.find(head.model_name, head.model_version)
        if model.decoupled:
            raise UnsupportedError(
                "ModelInfer RPC doesn't support models with decoupled transaction policy"
            )
        metadata = context.metadata
        if FORMAT in metadata:
            callbacks = Reporting(callbacks, context, self._server.load_meter)
        record = None
        tracer = self._server.tracer
        if tracer.active or EXPLAIN in metadata:
            record = CallRecord.begin(
                tracer, head, "ModelInfer", Explanations(context), context.opened
            )
        try:
            return self._infer(message, context, callbacks, model, record)
        except BaseException as error:
            if record is not None:
                record.explain(error)
                record.finish(error)
            raise

    def _infer(
        self,
        message: InferMessage,
        context: RpcContext,
        callbacks: CompletionCallbacks,
        model: ServedModel,
        record: CallRecord | None,
    ) -> Callable[[], None] | None:
        headers = forwarded(self._forward, context) if self._forward else None
        regions = self._server.regions
        scope = RequestScope(context.deadline, headers=context.metadata)
        if record is not None:
            scope.timeline = record.timeline
        if (tenants := self._server.tenants) is not None:
            scope.sender = tenants.sender(context.metadata)
        if (call_id := context.metadata.get(CALL_ID)) is not None:
            scope.call_id = call_id
        request = decode_request(message, scope, regions, headers)
        try:
            stream = model.infer(request)
        except BaseException as error:
            name_request(error, request)
            regions.release(request)
            raise
        return UnaryAnswer(request, callbacks, self._encoder, regions, record).follow(stream)

    async def ModelStreamInfer(
        self, requests: AsyncIterator[InferMessage], context: RpcContext
    ) -> None:
        await InferStream(self._server, context, self._forward).run(requests)
        if FORMAT in context.metadata:
            add_report(context, self._server.load_meter)

    # -- health and metadata ------------------------------------------------------------------

    async def ServerLive(self, _: pb.ServerLiveRequest, __: RpcContext) -> Message:
        return pb.ServerLiveResponse(live=await self._server.live())

    async def ServerReady(self, _: pb.ServerReadyRequest, __: RpcContext) -> Message:
        return pb.ServerReadyResponse(ready=await self._server.ready())

    async def ModelReady(self, message: pb.ModelReadyRequest, context: RpcContext) -> Message:
        ready = await self._server.model_ready(message.name, message.version)
        if (resident := self._server.resident(message.name)) is not None:
            context.add_trailing_metadata([(RESIDENT, str(resident).lower())])
        return pb.ModelReadyResponse(ready=ready)

    async def ServerMetadata(self, _: pb.ServerMetadataRequest, __: RpcContext) -> Message:
        metadata = await self._server.metadata()
        return pb.ServerMetadataResponse(
            name=metadata.name, version=metadata.version, extensions=metadata.extensions
        )

    async def ModelMetadata(self, message: pb.ModelMetadataRequest, _: RpcContext) -> Message:
        metadata = await self._server.model_metadata(message.name, message.version)
        return pb.ModelMetadataResponse(
            name=metadata.name,
            versions=metadata.versions,
            platform=metadata.platform,
            inputs=_tensors(metadata.inputs),
            outputs=_tensors(metadata.outputs),
        )

    async def ModelConfig(self, message: pb.ModelConfigRequest, _: RpcContext) -> Message:
        config = await self._server.model_config(message.name, message.version)
        return pb.ModelConfigResponse(config=config_to_message(config))

    async def ModelStatistics(self, message: pb.ModelStatisticsRequest, _: RpcContext) -> Message:
        models = await self._server.statistics(message.name, message.version)
        return pb.ModelStatisticsResponse(model_stats=map(encode_statistics, models))

    # -- model repository ---------------------------------------------------------------------

    async def RepositoryIndex(self, message: pb.RepositoryIndexRequest, _: RpcContext) -> Message:
        _refuse_repository_name(message.repository_name)
        entries = await self._server.index(message.ready)
        return pb.RepositoryIndexResponse(
            models=[
                pb.RepositoryIndexResponse.ModelIndex(
                    name=e.name,
                    version=e.version,
                    state=e.state,
                    reason=replace_surrogates(e.reason),
                )
                for e in entries
            ]
        )

    async def RepositoryModelLoad(
        self, message: pb.RepositoryModelLoadRequest, _: RpcContext
    ) -> Message:
        _refuse_repository_name(message.repository_name)
        parameters = load_parameters(message.parameters)
        self._policy.check_files(parameters)
        await self._server.load(message.model_name, parameters, trusted=self._policy.upload)
        return pb.RepositoryModelLoadResponse()

    async def RepositoryModelUnload(
        self, message: pb.RepositoryModelUnloadRequest, _: RpcContext
    ) -> Message:
        _refuse_repository_name(message.repository_name)
        dependents = unload_dependents(message.parameters)
        versions = unload_versions(message.parameters)
        await self._server.unload(message.model_name, dependents, versions)
        return pb.RepositoryModelUnloadResponse()

    # -- settings -----------------------------------------------------------------------------

    async def TraceSetting(self, message: pb.TraceSettingRequest, _: RpcContext) -> Message:
        changes = decode_trace(message)
        if changes:
            self._policy.check_trace()
        return encode_trace(await self._server.trace_settings(message.model_name, changes))

    async def LogSettings(self, message: pb.LogSettingsRequest, _: RpcContext) -> Message:
        if message.settings:
            self._policy.check_log()
        return encode_log(await self._server.log_settings(decode_log(message.settings)))


def _tensors(tensors: Iterable[TensorMetadata]) -> list[pb.ModelMetadataResponse.TensorMetadata]:
    return [
        pb.ModelMetadataResponse.TensorMetadata(name=t.name, datatype=t.datatype, shape=t.shape)
        for t in tensors
    ]


def _refuse_repository_name(name: str) -> None:
    if name:
        raise UnsupportedError("'repository_name' specification is not supported")


def _method(name: str, handler: Unary) -> Method:
    request, response = getattr(pb, f"{name}Request"), getattr(pb, f"{name}Response")
    return Method(name, request, response, handler, eager=not name.startswith("Repository"))
