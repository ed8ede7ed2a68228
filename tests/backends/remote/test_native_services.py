"""Engines with a front end of their own: `vllm.Inference` with `vllm.Control`, SGLang's runtime."""

# ruff: noqa: N802 - the methods have the names of the services

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from backends.remote.far_server import entry
from fakes import until
from penstock.core.errors import (
    InternalError,
    InvalidRequestError,
    ModelLoadError,
    UnavailableError,
)
from penstock.core.request import InferenceResponse
from penstock.demo.language_model import CHECKPOINT
from penstock.protocol import health_pb2, health_pb2_grpc
from penstock.protocol import sglang_runtime_pb2 as sg
from penstock.protocol import sglang_runtime_pb2_grpc as sg_grpc
from penstock.protocol import vllm_inference_pb2 as pb
from penstock.protocol import vllm_inference_pb2_grpc as pb_grpc
from penstock.testing import RunningInstance, running
from penstock_backends.openai_kit.text_models.named_tokenizer import load_tokenizer
from penstock_backends.remote import RemoteBackend

tokenizer = load_tokenizer(CHECKPOINT)
STREAM = np.array([True])
MADE = list(tokenizer.encode(" upon a time", add_special_tokens=False).ids)


class VllmFront(pb_grpc.InferenceServicer, pb_grpc.ControlServicer, health_pb2_grpc.HealthServicer):
    """vLLM's front end: a stream that is cancelled goes on in its engine until it is aborted."""

    def __init__(self, *answers: Any, waits: bool = False, healthy: bool = True) -> None:
        self._answers = answers
        self._waits = waits
        self._healthy = healthy
        self.asked: list[Any] = []
        self.aborted: list[str] = []

    def add_to(self, server: Any) -> None:
        pb_grpc.add_InferenceServicer_to_server(self, server)
        pb_grpc.add_ControlServicer_to_server(self, server)
        health_pb2_grpc.add_HealthServicer_to_server(self, server)

    async def GenerateStream(self, request: Any, context: Any) -> AsyncIterator[Any]:
        self.asked.append(request)
        yield pb.GenerateResponse(prompt_info=pb.PromptInfo(num_prompt_tokens=2))
        for one in self._answers:
            yield one
        if self._waits:
            await asyncio.Event().wait()

    async def Abort(self, request: Any, context: Any) -> Any:
        self.aborted += request.request_ids
        return pb.AbortResponse()

    async def GetServerInfo(self, request: Any, context: Any) -> Any:
        return pb.ServerInfo(max_model_len=1024, kv_block_size=16, max_running_requests=8)

    async def Check(self, request: Any, context: Any) -> Any:
        status = "SERVING" if self._healthy else "NOT_SERVING"
        return health_pb2.HealthCheckResponse(status=status)


class SglangFront(sg_grpc.SglangServiceServicer):
    """SGLang's front end."""

    def __init__(self, *answers: Any, waits: bool = False, healthy: bool = True) -> None:
        self._answers = answers
        self._waits = waits
        self._healthy = healthy
        self.asked: list[Any] = []
        self.aborted: list[str] = []

    def add_to(self, server: Any) -> None:
        sg_grpc.add_SglangServiceServicer_to_server(self, server)

    async def Generate(self, request: Any, context: Any) -> AsyncIterator[Any]:
        self.asked.append(request)
        for one in self._answers:
            yield one
        if self._waits:
            await asyncio.Event().wait()

    async def Abort(self, request: Any, context: Any) -> Any:
        self.aborted.append(request.rid)
        return sg.AbortResponse(success=True)

    async def HealthCheck(self, request: Any, context: Any) -> Any:
        return sg.HealthCheckResponse(healthy=self._healthy)

    async def GetModelInfo(self, request: Any, context: Any) -> Any:
        return sg.GetModelInfoResponse(model_path="there/model")


@asynccontextmanager
async def before(
    front: Any, tmp_path: Path, protocol: str, **more: str
) -> AsyncIterator[RunningInstance]:
    """An instance that asks this front end, on a port of its own."""
    server = grpc.aio.server()
    front.add_to(server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    config = entry(
        "m",
        f"grpc://127.0.0.1:{port}",
        protocol=protocol,
        tokenizer=str(CHECKPOINT),
        health_interval_ms="60000",
        **more,
    )
    try:
        async with running(RemoteBackend, config, tmp_path) as instance:
            yield instance
    finally:
        await server.stop(None)


async def answers(
    instance: RunningInstance, parameters: Any = None, **inputs: Any
) -> list[InferenceResponse]:
    given = {"text_input": "Once", "exclude_input_in_output": STREAM, **inputs}
    if "stream" in inputs:
        del given["exclude_input_in_output"]
    return [one async for one in instance.infer(given, parameters or {})]


def texts(responses: Sequence[InferenceResponse]) -> str:
    return b"".join(one.outputs["text_output"].elements()[0] for one in responses).decode()


def sequence(tokens: Sequence[int], **fields: Any) -> Any:
    outputs = pb.SequenceOutput(token_ids=tokens, num_tokens=len(tokens), **fields)
    return pb.GenerateResponse(outputs=outputs)


def finish(reason: str = "STOP", **fields: Any) -> Any:
    return pb.FinishInfo(finish_reason=reason, **fields)


# -- vLLM's front end ------------------------------------------------------------------------------


async def test_vllms_front_end_is_asked_in_its_own_names(tmp_path: Path) -> None:
    parts = [sequence([one]) for one in MADE[:-1]]
    end = sequence(MADE[-1:], finish_info=finish("LENGTH"))
    front = VllmFront(*parts, end)
    given = {"max_tokens": 9, "min_tokens": 1, "stop": ["zz"], "top_k": 4, "seed": 3, "min_p": 0.5}
    wanted = {"return_finish_reason": STREAM, "return_num_output_tokens": STREAM}
    async with before(front, tmp_path, "vllm_inference", remote_model="there") as instance:
        found = await answers(instance, given, stream=STREAM, **wanted)
        facts = instance.backend.engine_facts()
    [asked] = front.asked
    assert texts(found) == tokenizer.decode(MADE)
    assert found[-1].outputs["finish_reason"].elements() == [b"length"]
    assert sum(int(one.outputs["num_output_tokens"].numpy()[0]) for one in found) == len(MADE)
    assert (asked.model, list(asked.token_ids.ids)) == ("there", tokenizer.encode("Once").ids)
    stopping, sampling = asked.stopping, asked.sampling
    assert (stopping.max_new_tokens, stopping.min_new_tokens) == (9, 1)
    assert list(stopping.stop_strings) == ["zz"]
    assert (sampling.top_k, sampling.seed, sampling.min_p, sampling.top_p) == (4, 3, 0.5, 1.0)
    assert (asked.temperature, asked.decoding.repetition_penalty) == (1.0, 1.0)
    assert (asked.response.output_text, asked.response.output_token_ids) == (False, True)
    assert (facts.context_length, facts.block_size, facts.max_running) == (1024, 16, 8)


@pytest.mark.parametrize(
    ("end", "told"),
    [
        ({"stop_string": "zz"}, "zz"),
        ({"stop_token_id": 7}, 7),
        ({"eos_token_id": 2}, None),
    ],
)
async def test_the_stop_that_vllm_has_found(tmp_path: Path, end: Any, told: Any) -> None:
    front = VllmFront(sequence(MADE, finish_info=finish(**end)))
    async with before(front, tmp_path, "vllm_inference") as instance:
        [found] = await answers(instance, return_stop_reason=STREAM)
    assert json.loads(found.outputs["stop_reason"].elements()[0]) == told


async def test_log_probabilities_of_vllms_front_end(tmp_path: Path) -> None:
    token = pb.CandidateTokenInfo.TokenInfo
    place = pb.CandidateTokenInfo(tokens=[token(id=7, logprob=-2.0, rank=2)])
    fields = {"logprobs": [-0.5], "candidate_tokens": [place], "finish_info": finish()}
    front = VllmFront(sequence(MADE[:1], **fields))
    async with before(front, tmp_path, "vllm_inference") as instance:
        [found] = await answers(instance, {"logprobs": 1}, return_logprobs=STREAM)
    [told] = json.loads(found.outputs["logprobs"].elements()[0])
    assert (told[str(MADE[0])]["logprob"], told["7"]["logprob"]) == (-0.5, -2.0)
    assert front.asked[0].response.output_candidates.top_n == 1


async def test_several_answers_of_vllms_front_end(tmp_path: Path) -> None:
    first, second = MADE[:2], MADE[2:]
    front = VllmFront(
        sequence(second[:1], index=1),
        sequence(first, index=0, finish_info=finish()),
        sequence(second[1:], index=1, finish_info=finish("LENGTH")),
    )
    async with before(front, tmp_path, "vllm_inference") as instance:
        [found] = await answers(instance, {"n": 2}, return_finish_reason=STREAM)
    assert [one.decode() for one in found.outputs["text_output"].elements()] == [
        tokenizer.decode(first),
        tokenizer.decode(second),
    ]
    assert found.outputs["finish_reason"].elements() == [b"stop", b"length"]
    assert front.asked[0].sampling.num_sequences == 2


@pytest.mark.parametrize(
    ("given", "field", "value"),
    [
        ({"regex": "[ab]"}, "regex", "[ab]"),
        ({"json": {"type": "object"}}, "json", '{"type": "object"}'),
        ({"json_object": True}, "json_object", True),
        ({"choice": ["a"]}, "choice", pb.DecodingParameters.StringChoices(choices=["a"])),
    ],
)
async def test_structure_by_vllms_front_end(
    tmp_path: Path, given: Any, field: str, value: Any
) -> None:
    front = VllmFront(sequence(MADE, finish_info=finish()))
    async with before(front, tmp_path, "vllm_inference") as instance:
        await answers(instance, sampling_parameters=json.dumps({"structured_outputs": given}))
    assert getattr(front.asked[0].decoding, field) == value


async def test_vllms_front_end_that_aborts_has_failed(tmp_path: Path) -> None:
    front = VllmFront(sequence([], finish_info=finish("ABORTED")))
    async with before(front, tmp_path, "vllm_inference") as instance:
        with pytest.raises(UnavailableError, match="ended the request: abort"):
            await answers(instance)


# -- SGLang's front end ----------------------------------------------------------------------------


def told(
    tokens: Sequence[int],
    count: int,
    more: Mapping[str, str] | None = None,
    *,
    finished: bool = False,
) -> Any:
    meta = {"completion_tokens": str(count), "cached_tokens": "1", **(more or {})}
    return sg.GenerateResponse(output_ids=tokens, meta_info=meta, finished=finished)


@pytest.mark.contract("SD-07")
@pytest.mark.parametrize("all_so_far", [True, False])
async def test_sglangs_front_end_sends_all_tokens_or_the_new_ones(
    tmp_path: Path, all_so_far: bool
) -> None:
    """As `--incremental-streaming-output` says."""
    parts = [
        told(MADE[:count] if all_so_far else MADE[count - 1 : count], count)
        for count in range(1, len(MADE))
    ]
    reason = {"finish_reason": '{"type": "stop", "matched": "zz"}'}
    last = MADE if all_so_far else MADE[-1:]
    front = SglangFront(*parts, told(last, len(MADE), reason, finished=True))
    wanted = {"return_stop_reason": STREAM, "return_num_output_tokens": STREAM}
    async with before(front, tmp_path, "sglang_runtime") as instance:
        found = await answers(instance, {"max_tokens": 9, "stop": ["zz"]}, stream=STREAM, **wanted)
        facts = instance.backend.engine_facts()
    [asked] = front.asked
    assert texts(found) == tokenizer.decode(MADE)
    assert json.loads(found[-1].outputs["stop_reason"].elements()[0]) == "zz"
    assert sum(int(one.outputs["num_output_tokens"].numpy()[0]) for one in found) == len(MADE)
    assert list(asked.input_ids) == list(tokenizer.encode("Once").ids)
    sampling = asked.sampling_params
    assert (sampling.max_new_tokens, sampling.top_k, sampling.temperature) == (9, -1, 1.0)
    assert (list(sampling.stop), asked.stream, facts.model) == (["zz"], True, "there/model")


@pytest.mark.parametrize(
    ("parameters", "inputs", "text"),
    [
        ({"seed": 3}, {}, "'seed' is not supported"),
        ({"n": 2}, {}, "'n' is not supported"),
        ({"structured_outputs": {"grammar": "x"}}, {}, "'grammar' is not supported"),
    ],
)
async def test_what_sglangs_front_end_has_not_is_named(
    tmp_path: Path, parameters: Any, inputs: Any, text: str
) -> None:
    front = SglangFront()
    async with before(front, tmp_path, "sglang_runtime") as instance:
        with pytest.raises(InvalidRequestError, match=text):
            await answers(instance, sampling_parameters=json.dumps(parameters), **inputs)
    assert not front.asked


@pytest.mark.parametrize("all_so_far", [True, False])
async def test_log_probabilities_of_sglangs_front_end(tmp_path: Path, all_so_far: bool) -> None:
    """As with tokens, those so far or those of the new ones; a place may lack its likeliest."""
    chosen = [[-0.5, MADE[0], None], [-0.25, MADE[1], None]]
    likeliest = [[[-0.5, MADE[0], None], [-2.0, 7, None]], None]
    since = 0 if all_so_far else 1
    front = SglangFront(
        told(MADE[:1], 1, probabilities(chosen[:1], likeliest[:1])),
        told(MADE[since:2], 2, probabilities(chosen[since:], likeliest[since:]), finished=True),
    )
    wanted = {"return_logprobs": STREAM, "return_cumulative_logprob": STREAM}
    async with before(front, tmp_path, "sglang_runtime") as instance:
        [found] = await answers(instance, {"logprobs": 2}, **wanted)
    first, second = json.loads(found.outputs["logprobs"].elements()[0])
    assert (first[str(MADE[0])]["logprob"], first["7"]["logprob"]) == (-0.5, -2.0)
    assert (first["7"]["rank"], list(second)) == (2, [str(MADE[1])])
    assert found.outputs["cumulative_logprob"].numpy().tolist() == [-0.75]
    [asked] = front.asked
    assert (asked.return_logprob, asked.top_logprobs_num) == (True, 2)


def probabilities(chosen: Any, likeliest: Any) -> dict[str, str]:
    return {
        "output_token_logprobs": json.dumps(chosen),
        "output_top_logprobs": json.dumps(likeliest),
    }


@pytest.mark.parametrize("chosen", [[[-0.5, 7, None]], [[None, MADE[0], None]], [3], {}])
async def test_log_probabilities_of_something_else(tmp_path: Path, chosen: Any) -> None:
    front = SglangFront(told(MADE[:1], 1, probabilities(chosen, []), finished=True))
    async with before(front, tmp_path, "sglang_runtime") as instance:
        with pytest.raises(InternalError, match="the remote's answer is none"):
            await answers(instance, return_logprobs=STREAM)


async def test_sglangs_front_end_that_tells_no_numbers(tmp_path: Path) -> None:
    wrong = sg.GenerateResponse(output_ids=[5], meta_info={"completion_tokens": "many"})
    async with before(SglangFront(wrong), tmp_path, "sglang_runtime") as instance:
        with pytest.raises(Exception, match="the remote's answer is none"):
            await answers(instance)


# -- both ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [VllmFront, SglangFront])
async def test_log_probabilities_that_do_not_come_are_missed(tmp_path: Path, kind: Any) -> None:
    """A front end of another version may not know what was asked."""
    vllm = kind is VllmFront
    end = sequence(MADE, finish_info=finish()) if vllm else told(MADE, len(MADE), finished=True)
    protocol = "vllm_inference" if vllm else "sglang_runtime"
    async with before(kind(end), tmp_path, protocol) as instance:
        with pytest.raises(InternalError, match="told no log probabilities"):
            await answers(instance, return_logprobs=STREAM)


@pytest.mark.parametrize("kind", [VllmFront, SglangFront])
@pytest.mark.parametrize("name", ["logit_bias", "bad_words", "prompt_logprobs", "best_of"])
async def test_what_no_front_end_is_asked_for_is_refused(
    tmp_path: Path, kind: Any, name: str
) -> None:
    front, protocol = kind(), "vllm_inference" if kind is VllmFront else "sglang_runtime"
    async with before(front, tmp_path, protocol) as instance:
        with pytest.raises(InvalidRequestError, match=f"'{name}'"):
            await answers(instance, sampling_parameters=json.dumps({name: 1}))
    assert not front.asked


@pytest.mark.parametrize("kind", [VllmFront, SglangFront])
async def test_a_reader_that_leaves_has_the_request_aborted(tmp_path: Path, kind: Any) -> None:
    first = sequence(MADE[:1]) if kind is VllmFront else told(MADE[:1], 1)
    protocol = "vllm_inference" if kind is VllmFront else "sglang_runtime"
    front = kind(first, waits=True)
    async with before(front, tmp_path, protocol) as instance:
        responses = instance.infer({"text_input": "Once", "stream": STREAM})
        await anext(responses)
        await responses.aclose()
        await until(lambda: bool(front.aborted))
    [asked] = front.asked
    assert front.aborted == [asked.request_id if kind is VllmFront else asked.rid]


@pytest.mark.parametrize("kind", [VllmFront, SglangFront])
async def test_a_front_end_that_is_ill_is_not_ready(tmp_path: Path, kind: Any) -> None:
    protocol = "vllm_inference" if kind is VllmFront else "sglang_runtime"
    async with before(kind(healthy=False), tmp_path, protocol) as instance:
        assert "the engine is not healthy" in instance.backend.unready()


@pytest.mark.parametrize(
    ("protocol", "other", "method"),
    [
        ("vllm_inference", SglangFront, "/grpc.health.v1.Health/Check"),
        ("sglang_runtime", VllmFront, "/sglang.runtime.v1.SglangService/HealthCheck"),
    ],
)
async def test_a_server_of_something_else_is_named(
    tmp_path: Path, protocol: str, other: Any, method: str
) -> None:
    """As the gRPC port of another engine, or of a version that has not the service yet."""
    async with before(other(), tmp_path, protocol) as instance:
        reason = instance.backend.unready()
    assert f"it does not serve {method}, which 'protocol' {protocol} needs" in reason


async def test_an_engine_that_is_no_server_of_kserve(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match="does not serve ModelMetadata, which 'protocol' ks"):
        async with before(VllmFront(), tmp_path, "kserve"):
            pass
