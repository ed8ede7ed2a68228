"""The methods of `vllm.grpc.engine.VllmEngine`: language models for routers of engines."""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final, NamedTuple

from google.protobuf.message import Message

from penstock.access.current import current_caller, current_permit
from penstock.core.errors import (
    InferenceError,
    InvalidRequestError,
    NotFoundError,
    OutOfRangeError,
    RequestCancelledError,
    UnavailableError,
)
from penstock.core.request import CALL_ID, InferenceRequest, RequestScope
from penstock.core.stream import ResponseStream, require_single
from penstock.metrics.language_model import PREFIX
from penstock.protocol import engine_common_pb2 as common
from penstock.protocol import grpc_service_pb2
from penstock.protocol import vllm_engine_pb2 as pb
from penstock.rpc.call_record import CallRecord, Explanations
from penstock.rpc.context import Method, RpcContext, Service, Unary, method_name
from penstock.rpc.engine.generation import Answers, embedded, embedding_of, request_of
from penstock.rpc.engine.kv_events import KvEvents
from penstock.rpc.engine.tokenizer import TokenizerBundles, tokenizer_path
from penstock.rpc.orca import add_report
from penstock.rpc.status import STOPPED
from penstock.server.answers import Engine
from penstock.server.faces import Engines
from penstock.server.load_meter import FORMAT

NAME: Final = "vllm.grpc.engine.VllmEngine"

MODEL: Final = "penstock-model"
"""Metadata that names the language model of a call, which the messages do not."""

TYPE: Final = "penstock-grpc"
"""What `GetServerInfo` says that the server is."""

_PIECE: Final = 64 << 10
_MOST_NAMED: Final = 8
_MOST_HOSTS: Final = 32
_RATE_SECONDS: Final = 1.0


class _Sent(NamedTuple):
    """Who sent a request, and its id: who else sends the same id does not abort it."""

    caller: str
    tenant: str
    id: str


class VllmEngineServicer:
    """Handlers of the service. Requests of KServe's protocol are none of theirs.

    `model` is asked where a call names none and the server has several.
    """

    def __init__(self, server: Engines, model: str = "") -> None:
        self._server = server
        self._model = model
        self._started = time.monotonic()
        self._received = 0.0
        self._running: dict[_Sent, set[ResponseStream]] = {}
        self._bundles = TokenizerBundles()
        self._rates: dict[str, TokenRate] = {}

    def service(self) -> Service:
        """The service with its methods."""
        unary: list[Unary] = [
            *(self.Embed, self.HealthCheck, self.Abort),
            *(self.GetModelInfo, self.GetServerInfo, self.GetLoads),
        ]
        methods = [_method(handler) for handler in unary]
        generate = Method(
            "Generate",
            pb.GenerateRequest,
            pb.GenerateResponse,
            self.Generate,
            server_streaming=True,
            unbounded=True,
        )
        tokenizer = Method(
            "GetTokenizer",
            common.GetTokenizerRequest,
            common.GetTokenizerChunk,
            self.GetTokenizer,
            server_streaming=True,
        )
        events = Method(
            "SubscribeKvEvents",
            common.SubscribeKvEventsRequest,
            common.KvEventBatch,
            self.SubscribeKvEvents,
            server_streaming=True,
            endless=True,
        )
        return Service(NAME, [generate, *methods, tokenizer, events])

    # -- generation -----------------------------------------------------------------------------

    async def Generate(self, message: pb.GenerateRequest, context: RpcContext) -> None:
        """Send tokens as they are made, until the client goes or the request is aborted."""
        engine = await self._engine(context)
        record = self._record(engine, message.request_id, "Generate", context)
        try:
            request = request_of(message, engine, self._scope(context, record))
            await self._generate(message, request, context)
        except BaseException as error:
            if record is not None:
                record.explain(error)
                record.finish(error)
            raise
        if record is not None:
            record.explain()
            record.finish()
        if FORMAT in context.metadata:
            add_report(context, self._server.load_meter)

    async def _generate(
        self, message: pb.GenerateRequest, request: InferenceRequest, context: RpcContext
    ) -> None:
        answers = Answers(message, request)
        with self._streamed(request, context) as stream:
            try:
                async for response in stream:
                    for part in answers.messages(response):
                        if not context.write_nowait(part):
                            await context.writable()
            except RequestCancelledError:
                for part in answers.aborted():
                    await context.write(part)

    async def Embed(self, message: pb.EmbedRequest, context: RpcContext) -> Message:
        engine = await self._engine(context)
        request = embedding_of(message, engine, self._scope(context, None))
        with self._streamed(request, context) as stream:
            responses = [one async for one in stream]
        return embedded(message, require_single(responses, None))

    async def Abort(self, message: pb.AbortRequest, context: RpcContext) -> Message:
        for one in filter(None, message.request_ids):
            for stream in tuple(self._running.get(self._sent(one, context), ())):
                stream.abort(RequestCancelledError(f"request '{one[:128]}' was aborted"))
        return pb.AbortResponse()

    @contextmanager
    def _streamed(self, request: InferenceRequest, context: RpcContext) -> Iterator[ResponseStream]:
        """The responses to a request, which is cancelled at exit.

        It may be aborted meanwhile, if it has an id.
        """
        self._received = time.time()
        sent = self._sent(request.id, context)
        stream = self._server.infer(request)
        running = self._running.setdefault(sent, set())
        running.add(stream)
        try:
            yield stream
        finally:
            stream.close()
            running.discard(stream)
            if not running:
                self._running.pop(sent, None)

    def _sent(self, request_id: str, context: RpcContext) -> _Sent:
        tenants = self._server.tenants
        tenant = "" if tenants is None else tenants.sender(context.metadata).tenant
        return _Sent(current_caller(), tenant, request_id)

    def _scope(self, context: RpcContext, record: CallRecord | None) -> RequestScope:
        scope = RequestScope(context.deadline, headers=context.metadata)
        if record is not None:
            scope.timeline = record.timeline
        if (tenants := self._server.tenants) is not None:
            scope.sender = tenants.sender(context.metadata)
        scope.call_id = context.metadata.get(CALL_ID, "")
        return scope

    def _record(
        self, engine: Engine, request_id: str, method: str, context: RpcContext
    ) -> CallRecord | None:
        """The record of a call that is traced."""
        head = grpc_service_pb2.ModelInferRequest(model_name=engine.name, id=request_id)
        explanations = Explanations(context)
        record = CallRecord.begin(self._server.tracer, head, method, explanations, context.opened)
        if record is not None:
            record.timeline.facts["rpc.service"] = NAME
        return record

    # -- what there is --------------------------------------------------------------------------

    async def HealthCheck(self, _: pb.HealthCheckRequest, context: RpcContext) -> Message:
        try:
            name = await self._name(context)
        except InferenceError as error:
            return pb.HealthCheckResponse(healthy=False, message=error.message)
        if await self._server.model_ready(name, ""):
            return pb.HealthCheckResponse(healthy=True, message=f"model '{name}' is ready")
        return pb.HealthCheckResponse(healthy=False, message=f"model '{name}' is not ready")

    async def GetModelInfo(self, _: pb.GetModelInfoRequest, context: RpcContext) -> Message:
        engine = await self._engine(context)
        facts = engine.facts
        return pb.GetModelInfoResponse(
            model_path=facts.model or engine.name,
            is_generation=facts.generates,
            max_context_length=facts.context_length,
            vocab_size=facts.vocabulary,
            served_model_name=engine.name,
            tokenizer_path=await asyncio.to_thread(tokenizer_path, facts),
            model_type=facts.model_type,
            architectures=facts.architectures,
            eos_token_ids=facts.eos_token_ids,
            pad_token_id=facts.pad_token_id,
            bos_token_id=facts.bos_token_id,
            max_req_input_len=facts.context_length,
            default_sampling_params_json=_compact(facts.sampling_defaults),
        )

    async def GetServerInfo(self, _: pb.GetServerInfoRequest, context: RpcContext) -> Message:
        engine = await self._engine(context, load=False)
        facts = engine.facts
        return pb.GetServerInfoResponse(
            active_requests=engine.model.statistics.in_flight,
            is_paused=not await self._server.model_ready(engine.name, ""),
            last_receive_timestamp=self._received,
            uptime_seconds=time.monotonic() - self._started,
            server_type=TYPE,
            data_parallel_size=facts.data_parallel_size,
            kv_cache_dtype=facts.cache_dtype,
            block_size=facts.block_size,
            model_dtype=facts.dtype,
            max_num_seqs=engine.model.places() or facts.max_running,
            engine_reasoning_parser=facts.reasoning_parser,
            constrained_decoding_start=facts.constraints_start,
        )

    async def GetLoads(self, _: pb.GetLoadsRequest, context: RpcContext) -> Message:
        """The load of one model, as of now: requests that the server has admitted count.

        The engine's own numbers, the share of its KV cache and its tokens, are half a second old at
        most.
        """
        engine = await self._engine(context, load=False)
        metadata = await self._server.metadata()
        return pb.GetLoadsResponse(
            timestamp=datetime.now(UTC).isoformat(),
            version=metadata.version,
            dp_rank_count=1,
            loads=[self._load(engine)],
        )

    def _load(self, engine: Engine) -> pb.SchedulerLoad:
        model = engine.model
        numbers = {one.name: float(one.value) for one in model.gauges()}
        total, places = model.statistics.in_flight, model.places() or engine.facts.max_running
        running = min(total, places) if places else total
        prompts = numbers.get(f"{PREFIX}prefill_tokens_total", 0.0)
        cached = numbers.get(f"{PREFIX}cached_tokens_total", 0.0)
        usage = numbers.get(f"{PREFIX}kv_cache_usage", 0.0)
        rate = self._rates.setdefault(engine.name, TokenRate())
        return pb.SchedulerLoad(
            num_running_reqs=running,
            num_waiting_reqs=total - running,
            num_total_reqs=total,
            token_usage=usage,
            gen_throughput=rate.of(numbers.get(f"{PREFIX}generation_tokens_total", 0.0)),
            cache_hit_rate=cached / (cached + prompts) if cached else 0.0,
            utilization=running / places if places else 0.0,
            max_running_requests=places,
            num_waiting_uncached_tokens=int(numbers.get(f"{PREFIX}queued_tokens", 0.0)),
        )

    async def GetTokenizer(self, _: common.GetTokenizerRequest, context: RpcContext) -> None:
        engine = await self._engine(context)
        data, digest = await asyncio.to_thread(self._bundles.get, engine.facts)
        for at in range(0, len(data), _PIECE):
            last = at + _PIECE >= len(data)
            piece = common.GetTokenizerChunk(data=data[at : at + _PIECE])
            if last:
                piece.sha256 = digest
            await context.write(piece)

    async def SubscribeKvEvents(
        self, message: common.SubscribeKvEventsRequest, context: RpcContext
    ) -> None:
        """Pass on what the engine publishes, until the client, the engine or the server goes."""
        engine = await self._engine(context)
        if wanted := message.start_sequence_number:
            raise OutOfRangeError(f"KV events from number {wanted} on are not kept: ask for 0")
        events = KvEvents(engine.facts.kv_events)

        async def write(batch: Message) -> None:
            if not self._sees(engine.name):
                raise NotFoundError(f"the caller does not see model '{engine.name}' any more")
            await context.write(batch)

        following = asyncio.ensure_future(events.follow(context.begin, write))
        stopping = asyncio.ensure_future(self._server.wait_stopping())
        try:
            await asyncio.wait([following, stopping], return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
            following.cancel()
            await asyncio.wait([following])
        if stopping.done() and not stopping.cancelled():
            raise UnavailableError(STOPPED)
        if not following.cancelled() and (error := following.exception()) is not None:
            raise error.exceptions[0] if isinstance(error, ExceptionGroup) else error

    # -- the model of a call --------------------------------------------------------------------

    async def _engine(self, context: RpcContext, *, load: bool = True) -> Engine:
        """The language model of a call; raises where it is none, or nobody can tell which.

        Without `load` a model that is not loaded stays so: routers ask again and again for numbers.
        """
        name = await self._name(context)
        engine = await self._server.engine(name, load=load)
        if engine is None:
            raise InvalidRequestError(f"model '{name}' does not take tokens from a router")
        return engine

    async def _name(self, context: RpcContext) -> str:
        """By metadata, else by the name of the host, else the setting, else the only one."""
        if name := context.metadata.get(MODEL):
            return name
        if name := self._of_host(context.authority):
            return name
        if self._model and self._sees(self._model):
            return self._model
        names = await self._server.engines()
        if not names:
            raise UnavailableError("no language model is loaded that takes tokens from a router")
        if len(names) > 1:
            told = ", ".join(names[:_MOST_NAMED]) + (", ..." if names[_MOST_NAMED:] else "")
            raise InvalidRequestError(
                f"the server has several language models ({told}): name one by the metadata"
                f" '{MODEL}', by the first part of the host's name, or by --engine-rpc=vllm:MODEL"
            )
        return names[0]

    def _sees(self, name: str) -> bool:
        """Whether the caller at hand may know of a model."""
        return self._server.access is None or current_permit().sees(name)

    def _of_host(self, authority: str) -> str:
        """The model that the first part of a host's name is, where it is one's name."""
        first, dot, _ = authority.partition(".")
        if not dot or first.isdigit() or authority.startswith("["):
            return ""
        return _named_by_host(first, tuple(self._server.model_names()))


class TokenRate:
    """Tokens a second, of a counter, between two looks at it of a second at least.

    What was counted before the first look does not count.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since, self._counted, self._rate = clock(), math.inf, 0.0

    def of(self, counted: float) -> float:
        """The rate, with the counter's value of now."""
        now = self._clock()
        self._counted = min(self._counted, counted)  # counters go back when models are unloaded
        if (seconds := now - self._since) >= _RATE_SECONDS:
            self._rate = (counted - self._counted) / seconds
            self._since, self._counted = now, counted
        return self._rate


@lru_cache(_MOST_HOSTS)
def _named_by_host(first: str, names: tuple[str, ...]) -> str:
    """The one of these models that a part of a host's name means; empty for none.

    Names of hosts have no `_`: a `-` stands for it as well.
    """
    if first in names:
        return first
    return next((name for name in names if name.replace("_", "-").lower() == first.lower()), "")


def _compact(given: Any) -> str:
    return json.dumps(dict(given), separators=(",", ":")) if given else ""


def _method(handler: Unary) -> Method:
    name = method_name(handler)
    return Method(name, getattr(pb, f"{name}Request"), getattr(pb, f"{name}Response"), handler)
