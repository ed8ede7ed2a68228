"""`KServeModel`: a model of a server of KServe v2, asked over gRPC."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from google.protobuf.message import DecodeError

from penstock.backend import (
    InferenceError,
    InferenceRequest,
    InternalError,
    ModelConfig,
    Outcome,
    ResponseStream,
    UnavailableError,
)
from penstock.protocol import grpc_service_pb2 as pb
from penstock_backends.remote.call_failures import error_of
from penstock_backends.remote.fleet import Fleet
from penstock_backends.remote.grpc_connection import (
    UNIMPLEMENTED,
    CallStatus,
    GrpcCall,
    Message,
    Received,
)
from penstock_backends.remote.grpc_endpoint import GrpcEndpoint
from penstock_backends.remote.kserve_calls import (
    INFER,
    READY,
    STREAM,
    Heads,
    ask,
    timeout_field,
)
from penstock_backends.remote.kserve_messages import (
    RequestEncoder,
    ResponseDecoder,
)
from penstock_backends.remote.settings import RemoteSettings
from penstock_backends.remote.shared_inputs import Lent, SharedInputs

_READS_ON = 60.0
"""Seconds for which a server may still read the inputs of a call that was cancelled."""


class KServeModel:
    """Passes each request on as a call of its own, by `ModelStreamInfer` if it is decoupled."""

    def __init__(self, settings: RemoteSettings, config: ModelConfig) -> None:
        self.settings = settings
        context = settings.tls(["h2"])
        self.fleet = Fleet([GrpcEndpoint(one, settings, context) for one in settings.addresses])
        self.heads = Heads(settings)
        self.shared = SharedInputs(settings.shared_memory, self.heads)
        self.decoupled = config.decoupled
        self.encoder = RequestEncoder(settings.model, settings.version, streamed=config.decoupled)
        self.decoder = ResponseDecoder(streamed=config.decoupled)
        self.loop = asyncio.get_running_loop()

    async def start(self) -> None:
        """Look at all addresses, and go on with it; a remote that is away is no failure."""
        await self.fleet.look(self.probe)
        self.fleet.watch(self.probe)

    async def probe(self, endpoint: GrpcEndpoint) -> str:
        """Why an address does not serve the model now; empty if it does."""
        settings = self.settings
        request = pb.ModelReadyRequest(name=settings.model, version=settings.version)
        status, answer = await ask(endpoint, self.heads, READY, request)
        self.fleet.note_load(endpoint, status)
        if status.code == UNIMPLEMENTED:
            return ""
        if answer is None:
            return status.message or f"ModelReady failed with gRPC code {status.code}"
        if not answer.ready:
            return f"model '{settings.model}' is not ready there"
        await self.shared.offer(endpoint)
        return ""

    def unready(self) -> str:
        """Why no call can be made; empty if one can."""
        return self.fleet.unready()

    def metrics(self) -> Mapping[str, float]:
        """Numbers of the addresses."""
        return self.fleet.metrics()

    async def close(self) -> None:
        """End all calls and connections."""
        await self.shared.close()
        await self.fleet.close()

    def infer(self, request: InferenceRequest) -> Outcome:
        """Pass a request on, once there is a stream for its responses."""
        return _InferCall(self, request).begin


class _InferCall(GrpcCall):
    """One request at the remote: its responses go to the stream of its reader, who may cancel it.

    It goes to another address only as long as nothing was answered.
    """

    _stream: ResponseStream
    _attempts = 0
    _begun = False
    _message: Message | None = None
    _lent: Lent | None = None
    _shares = True
    _endpoint: GrpcEndpoint | None = None

    def __init__(self, model: KServeModel, request: InferenceRequest) -> None:
        self._model = model
        self._request = request
        self._decoder = model.decoder.of(request.id)

    def begin(self, stream: ResponseStream) -> None:
        """Answer into a stream; raises `UnavailableError` where no address is up."""
        self._stream = stream
        stream.connect(self._cancel, self._taken)
        self._start()

    def _start(self) -> None:
        """Send it to an address."""
        request, model = self._request, self._model
        endpoint = model.fleet.pick(request.correlation_id, begins=request.sequence_start)
        self._endpoint = endpoint
        self._attempts += 1
        method = STREAM if model.decoupled else INFER
        fields = self._fields() if request.scope.deadline or request.scope.timeline else ()
        if request.scope.timeline is not None:
            request.scope.timeline.facts["remote.address"] = str(endpoint.address)
            request.mark("REMOTE_START")
        endpoint.start(self, model.heads.head(endpoint, method, fields), self._encoded(endpoint))

    def _encoded(self, endpoint: GrpcEndpoint) -> Message:
        """The request, its large inputs in memory that the server has as well, if it does."""
        request, model = self._request, self._model
        # A request of a sequence waits over there for others, longer than a client may for it.
        shares = self._shares and not request.correlation_id
        lent = model.shared.lend(endpoint, request.inputs) if shares else None
        if lent is not None:
            self._lent = lent
            return model.encoder.encode_lent(request, lent.region.name, lent.places)
        if self._message is None:
            self._message = model.encoder.encode(request)
        return self._message

    def _give_back(self) -> Lent | None:
        """End the use of shared memory; returns what was lent."""
        lent, self._lent = self._lent, None
        if lent is not None:
            lent.region.give_back(lent)
        return lent

    def _fields(self) -> list[tuple[bytes, bytes]]:
        fields, scope = [], self._request.scope
        if scope.deadline is not None:
            fields.append(timeout_field(scope.deadline - self._model.loop.time()))
        if scope.timeline is not None:
            for name, value in scope.timeline.context.headers.items():
                fields.append((name.encode(), value.encode("latin-1", "replace")))
        return fields

    # -- GrpcCall -----------------------------------------------------------------------------

    def received(self, message: Received) -> None:
        stream = self._stream
        if stream.ended:  # it goes on behind its last response
            self._cancel()
            return
        begun, self._begun = self._begun, True
        try:
            response = self._decoder.decode(message)
            if (
                self._model.decoupled
                and response.final
                and response.empty
                and not response.parameters
            ):
                stream.end()
            else:
                stream.send(response)
        except DecodeError as error:
            self._fail(InternalError(f"the remote's answer is no message: {error}"))
        except InferenceError as error:
            endpoint, lent = self._endpoint, self._lent
            if begun or endpoint is None or lent is None or lent.region.name not in error.message:
                self._fail(error)
                return
            self._cancel()
            self._begun = False
            self._by_bytes(endpoint, lent)
            return
        self.paused = self._model.decoupled and stream.full

    def ended(self, status: CallStatus) -> None:
        endpoint, request = self._endpoint, self._request
        assert endpoint is not None
        self._model.fleet.ended(endpoint, status)
        request.mark("REMOTE_END")
        self._endpoint = None
        lent = self._give_back()
        if self._stream.ended:
            pass
        elif lent is not None and lent.region.name in status.message:
            self._by_bytes(endpoint, lent)
            return
        elif status.code and self._again(endpoint, status):
            return
        elif status.code:
            self._stream.fail(error_of(status, endpoint.address))
        elif self._model.decoupled:
            self._stream.end()
        else:
            self._stream.fail(InternalError(f"remote {endpoint.address} has answered nothing"))
        if request.sequence_end:
            self._model.fleet.forget(request.correlation_id)

    def _by_bytes(self, endpoint: GrpcEndpoint, lent: Lent) -> None:
        """Begin anew, since the server does not know the memory, and so has not begun."""
        self._model.shared.lost(endpoint, lent.region)
        self._shares = False
        self.connection = None
        try:
            self._start()
        except UnavailableError as error:
            self._stream.fail(error)

    def _again(self, endpoint: GrpcEndpoint, status: CallStatus) -> bool:
        """Begin anew, where that is allowed: whether it was."""
        fleet, stateful = self._model.fleet, bool(self._request.correlation_id)
        if self._begun or self._attempts > self._model.settings.retries:
            return False
        if stateful and not (status.untouched and self._request.sequence_start):
            return False
        if not fleet.may_retry(endpoint, status):
            return False
        fleet.retries += 1
        self.connection = None
        try:
            self._start()
        except UnavailableError:
            return False
        return True

    # -- the reader ---------------------------------------------------------------------------

    def _taken(self, _: int) -> None:
        if self.paused and not self._stream.full and self.connection is not None:
            self.connection.resume(self)

    def _fail(self, error: InferenceError) -> None:
        self._stream.fail(error)
        self._cancel()

    def _cancel(self) -> None:
        endpoint, self._endpoint = self._endpoint, None
        lent, self._lent = self._lent, None
        if lent is not None:
            self._model.loop.call_later(_READS_ON, lent.region.give_back, lent)
        if endpoint is not None:
            endpoint.cancel(self)
