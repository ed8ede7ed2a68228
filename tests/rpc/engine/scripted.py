"""A language model that says the numbers of its tokens, served to the stub of real routers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import grpc
import numpy as np
import pytest

from penstock.backend import (
    Backend,
    DataType,
    EngineFacts,
    InferenceError,
    InferenceRequest,
    InferenceResponse,
    InstanceContext,
    ModelConfig,
    Outcome,
    Output,
    Tensor,
    Traits,
    UnavailableError,
    WithEngineFacts,
    WithMetrics,
)
from penstock.core.exit_deadline import ExitDeadline
from penstock.rpc.server import open_grpc
from penstock.server.server import InferenceServer
from penstock.settings import GrpcSettings
from penstock_backends.language_model import (
    Answer,
    Delivery,
    GenerationRequest,
    complete_tensors,
    read_request,
)
from penstock_backends.language_model.declared_tensors import declared_output, optional_input
from rpc.serving import channel_to

pb: Any = pytest.importorskip("smg_grpc_proto.generated.vllm_engine_pb2")
common: Any = pytest.importorskip("smg_grpc_proto.generated.common_pb2")
Stub: Any = pytest.importorskip("smg_grpc_proto.generated.vllm_engine_pb2_grpc").VllmEngineStub

CONTEXT = 100
FIRST = 1000
"""The token that is made first; the next ones are counted up."""
FAILS, WAITS = 66, 77
"""Tokens of a prompt whose request fails, and never ends behind its first token."""


class ScriptedBackend(WithEngineFacts, WithMetrics, Backend):
    """Makes as many tokens as it is asked for, of each answer; tells what it was asked."""

    traits = Traits(serial=False)
    facts: ClassVar[EngineFacts] = EngineFacts(
        model="scripted", context_length=CONTEXT, vocabulary=5000, eos_token_ids=[2], max_running=8
    )
    asked: ClassVar[list[GenerationRequest]] = []
    left: ClassVar[list[Sequence[int]]] = []

    @classmethod
    async def complete_config(cls, config: ModelConfig, *_: Any) -> ModelConfig:
        return complete_tensors(config)

    async def initialize(self, context: InstanceContext) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def engine_facts(self) -> EngineFacts:
        return self.facts

    def metrics(self) -> dict[str, float]:
        return {"penstock_llm_kv_cache_usage": 0.25}

    async def execute(self, requests: Sequence[InferenceRequest]) -> Sequence[Outcome]:
        return [self._outcome(one) for one in requests]

    def _outcome(self, request: InferenceRequest) -> Outcome:
        if "EMBEDDING" in request.requested_outputs:
            ids = request.inputs["input_ids"].numpy().astype(np.float32)
            return InferenceResponse({"EMBEDDING": Tensor.from_numpy(ids, DataType.FP32)})
        try:
            generation = read_request(request)
        except InferenceError as error:
            return error
        self.asked.append(generation)
        parameters = generation.parameters or {}
        answer = Answer(generation, 0, parameters.get("n", 1))
        prompt = [] if generation.input_ids is None else generation.input_ids.tolist()
        if generation.wanted.prompt_logprobs:
            places = [{str(token): {"logprob": -float(token)}} for token in prompt]
            text = json.dumps([None, *places[1:]])
            answer.attach("prompt_logprobs", Tensor.from_strings([text]))
        answer.prompt_tokens = len(prompt) or len(generation.prompt.split())
        delivery = Delivery(answer, lambda: self.left.append(prompt), merge=False)
        task = asyncio.ensure_future(self._make(delivery, prompt, parameters))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return delivery.stream

    async def _make(self, delivery: Delivery, prompt: Sequence[int], given: Any) -> None:
        wanted, candidates = delivery.answer.wanted, delivery.answer.candidates
        for made in range(given["max_tokens"]):
            for index, candidate in enumerate(candidates):
                token = FIRST + made + 100 * index
                candidate.add(f" {token}")
                candidate.token_ids.append(token)
                if wanted.logprobs:
                    place = {token: {"logprob": -0.5}, 7: {"logprob": -2.0}}
                    candidate.add_logprobs([place], -0.5 * made)
                if made + 1 == given["max_tokens"]:
                    candidate.finish_reason = "stop" if given.get("stop") else "length"
                    candidate.stop_reason = (given.get("stop") or [None])[0]
            delivery.push()
            if FAILS in prompt:
                delivery.fail(UnavailableError("the engine is gone"))
                return
            if WAITS in prompt:
                await asyncio.Event().wait()
            await asyncio.sleep(0)

    async def finalize(self) -> None:
        for task in self._tasks:
            task.cancel()


class EmbeddingBackend(ScriptedBackend):
    """The same, which also embeds: the tokens are the vector."""

    @classmethod
    async def complete_config(cls, config: ModelConfig, *_: Any) -> ModelConfig:
        embedding = Output(name="EMBEDDING", data_type=DataType.FP32, dims=(-1,))
        completed = complete_tensors(config)
        return replace(completed, output=(*completed.output, embedding))


class ScoringBackend(ScriptedBackend):
    """The same, which also tells log probabilities of prompts: those of token 5 are -5."""

    @classmethod
    async def complete_config(cls, config: ModelConfig, *_: Any) -> ModelConfig:
        wanted = optional_input("return_prompt_logprobs", DataType.BOOL)
        told = declared_output("prompt_logprobs", DataType.BYTES, dim=1)
        return complete_tensors(config, ((wanted,), (told,)))


def write_models(root: Path, *names: str) -> Path:
    for name in names:
        (root / name / "1").mkdir(parents=True)
        (root / name / "config.pbtxt").write_text('backend: "scripted"\n')
    return root


@asynccontextmanager
async def stub_of(
    server: InferenceServer, local: GrpcSettings, engine_rpc: str = "vllm"
) -> AsyncIterator[Any]:
    """The router's own stub, of a server."""
    settings = replace(local, engine_rpc=engine_rpc)
    async with open_grpc(server, settings, ExitDeadline(2)) as port, channel_to(port) as channel:
        stub = Stub(channel)
        stub.port, stub.of = port, Stub
        yield stub


def asking(
    tokens: Iterable[int] = (5, 6), *, stream: bool = True, id: str = "", **sampling: Any
) -> Any:
    """A request as a router makes it."""
    return pb.GenerateRequest(
        request_id=id,
        tokenized=pb.TokenizedInput(original_text="x y", input_ids=tokens),
        sampling_params=pb.SamplingParams(**{"max_tokens": 3, **sampling}),
        stream=stream,
    )


async def answers(stub: Any, request: Any, **options: Any) -> list[Any]:
    return [one async for one in stub.Generate(request, timeout=30, **options)]


async def failure(call: Any) -> tuple[grpc.StatusCode, str]:
    """The code and the text of a call that fails."""
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await call
    return failed.value.code(), failed.value.details() or ""


def structure(asked: GenerationRequest) -> Any:
    """What a scripted model was asked, as values that JSON has."""
    return json.loads(json.dumps(dict(asked.parameters or {})))
