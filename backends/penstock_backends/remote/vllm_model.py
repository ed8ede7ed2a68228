"""`VllmModel`: a language model of an engine that has a gRPC service of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from penstock.backend import (
    EngineFacts,
    Histogram,
    InferenceError,
    InferenceRequest,
    InstanceContext,
    InvalidRequestError,
    ModelLoadError,
    Outcome,
)
from penstock_backends.language_model import (
    EngineStatistics,
    PromptTokens,
    checked_ids,
    read_request,
    stream_interval,
)
from penstock_backends.openai_kit.text_models.named_tokenizer import load_tokenizer
from penstock_backends.remote.call_failures import reason_of
from penstock_backends.remote.fleet import Fleet
from penstock_backends.remote.grpc_connection import CallStatus
from penstock_backends.remote.grpc_endpoint import GrpcEndpoint
from penstock_backends.remote.kserve_calls import Heads, ask
from penstock_backends.remote.native_services import SERVICES
from penstock_backends.remote.settings import RemoteSettings
from penstock_backends.remote.vllm_generation import Engine, VllmGeneration
from penstock_backends.remote.vllm_messages import abort_of, facts_of, ill, messages

_MODEL = b"penstock-model"
"""Metadata by which a Penstock with several language models is told which is meant."""

_LONGEST_PROMPT = 1 << 20
"""Tokens of a prompt, which the engine bounds more tightly."""


class VllmModel:
    """Makes tokens of prompts and text of tokens; the engine is somewhere else.

    The tokenizer is a file of this machine: that of the parameter `tokenizer`, or `tokenizer.json`
    in the version's folder.
    """

    def __init__(self, settings: RemoteSettings, context: InstanceContext) -> None:
        self._settings = settings
        self._service = SERVICES[settings.protocol]
        self._pb = messages(self._service)
        self._context = context
        tls = settings.tls(["h2"])
        self._fleet = Fleet([GrpcEndpoint(one, settings, tls) for one in settings.addresses])
        named = [(_MODEL, settings.model.encode())] if settings.names_model else []
        self._heads = Heads(settings, self._service.name, named)
        self._info: Any = None
        self._places: dict[GrpcEndpoint, int] = {}
        self._statistics = EngineStatistics()
        self._aborts: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Load the tokenizer, and look at all addresses; one that is away is no failure."""
        settings, context = self._settings, self._context
        named = self._named = context.version_path / (settings.tokenizer or "tokenizer.json")
        if not await context.run(named.exists):
            raise ModelLoadError(
                f"the service of an engine needs a tokenizer, and there is no '{named}': the"
                " parameter 'tokenizer' names its file or its folder"
            )
        tokenizer = await context.run(load_tokenizer, Path(named))
        self._vocabulary = tokenizer.get_vocab_size()
        self._prompts = PromptTokens(tokenizer, context.run, _LONGEST_PROMPT)
        self._engine = Engine(
            self._service,
            self._pb,
            settings,
            self._fleet,
            self._heads,
            self._statistics,
            stream_interval(context.config),
            tokenizer,
            self._abort,
            asyncio.get_running_loop().time,
        )
        await self._fleet.look(self.probe)
        self._fleet.watch(self.probe)

    async def probe(self, endpoint: GrpcEndpoint) -> str:
        """Why an address does not serve now; empty if it does. Notes its load."""
        status, found = await self._ask(endpoint, "HealthCheck")
        if found is None:
            method = self._service.call("HealthCheck").path
            return reason_of(status, method, self._settings.protocol)
        if (reason := ill(found)) is not None:
            return reason
        if self._info is None:
            _, self._info = await self._ask(endpoint, "GetModelInfo")
        if not hasattr(self._pb, "GetLoadsRequest"):  # some services tell no load
            return ""
        _, load = await self._ask(endpoint, "GetLoads", include=["core"])
        if load is not None and load.loads:
            usage = max(one.token_usage for one in load.loads)
            self._places[endpoint] = max(0, sum(one.max_running_requests for one in load.loads))
            endpoint.standing.report(usage, asyncio.get_running_loop().time())
        return ""

    async def _ask(
        self, endpoint: GrpcEndpoint, method: str, **fields: Any
    ) -> tuple[CallStatus, Any]:
        """The end of a question, and its answer; `None` where it failed."""
        call, pb = self._service.call(method), self._pb
        request, answer = getattr(pb, call.request)(**fields), getattr(pb, call.answer)
        return await ask(endpoint, self._heads, call.path, request, answer)

    def unready(self) -> str:
        """Why no call can be made; empty if one can."""
        return self._fleet.unready()

    def engine_facts(self) -> EngineFacts:
        """Facts of the engine for routers, as far as one address has told them."""
        told = facts_of(self._info)
        return replace(told, tokenizer=str(self._named), vocabulary=self._vocabulary)

    def metrics(self) -> Mapping[str, float]:
        """Numbers of the addresses, and of a language model; its places where all tell theirs."""
        numbers = {**self._fleet.metrics(), **self._statistics.metrics()}
        up = [self._places.get(one, 0) for one in self._fleet.endpoints if one.standing.up]
        if up and all(up):
            numbers["penstock_llm_max_running_requests"] = float(sum(up))
        return numbers

    def histograms(self) -> Mapping[str, Histogram]:
        """Times and sizes of generations."""
        return self._statistics.distributions()

    async def close(self) -> None:
        """End all calls and connections."""
        if hasattr(self, "_prompts"):
            await self._prompts.close()
        await asyncio.gather(*self._aborts, return_exceptions=True)
        await self._fleet.close()

    def infer(self, request: InferenceRequest) -> Outcome:
        """Generate; raises `InferenceError` for what cannot be asked, or where nobody is up."""
        given = read_request(request)
        generation = VllmGeneration(self._engine, request, given)
        stream = generation.delivery.stream
        if given.input_ids is not None:
            ids = checked_ids(given.input_ids, self._vocabulary, _LONGEST_PROMPT)
        elif not given.prompt:
            raise InvalidRequestError("the prompt is empty: input 'text_input' must hold some text")
        elif self._prompts.is_long(given.prompt):
            put = partial(_tokenized, generation)
            self._prompts.encode_later(given.prompt, lambda: not stream.ended, put)
            return stream
        else:
            ids = self._prompts.encode(given.prompt)
        generation.begin(ids)
        return stream

    def _abort(self, endpoint: GrpcEndpoint, request_id: str) -> None:
        call, request = self._service.call("Abort"), abort_of(self._pb, self._service, request_id)
        work = ask(endpoint, self._heads, call.path, request, self._pb.AbortResponse)
        task = asyncio.get_running_loop().create_task(_within(work, self._settings.connect_timeout))
        self._aborts.add(task)
        task.add_done_callback(self._aborts.discard)


def _tokenized(generation: VllmGeneration, made: list[int] | InferenceError) -> None:
    """Go on with a request whose long prompt was made into tokens on a thread."""
    try:
        if isinstance(made, InferenceError):
            raise made
        generation.begin(made)
    except InferenceError as error:
        generation.delivery.stream.fail(error)


async def _within(work: Awaitable[object], seconds: float) -> None:
    """Wait for an answer that nobody needs, for so long."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await work
