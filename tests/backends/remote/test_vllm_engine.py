"""Engines that serve `vllm.grpc.engine.VllmEngine`: a stand-in of the service's own messages."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from backends.remote.bad_server import BadServer, bad_server, begun, ended, message
from backends.remote.far_server import entry
from penstock.core.errors import (
    BackendNotInstalledError,
    ConfigError,
    InferenceError,
    InternalError,
    InvalidRequestError,
    ModelLoadError,
    UnavailableError,
)
from penstock.core.request import InferenceResponse
from penstock.demo.language_model import CHECKPOINT
from penstock.testing import RunningInstance, running
from penstock_backends.openai_kit.text_models.named_tokenizer import load_tokenizer
from penstock_backends.remote import RemoteBackend

pb = pytest.importorskip("smg_grpc_proto.generated.vllm_engine_pb2")
tokenizer = load_tokenizer(CHECKPOINT)
STREAM = np.array([True])


def ids(text: str) -> list[int]:
    return list(tokenizer.encode(text, add_special_tokens=False).ids)


def chunk(tokens: list[int], index: int = 0, **fields: Any) -> Any:
    return pb.GenerateResponse(
        chunk=pb.GenerateStreamChunk(token_ids=tokens, index=index, **fields)
    )


def complete(tokens: list[int], reason: str = "stop", index: int = 0, **fields: Any) -> Any:
    end = pb.GenerateComplete(output_ids=tokens, finish_reason=reason, index=index, **fields)
    return pb.GenerateResponse(complete=end)


def engine(*responses: Any, end: bool = True, health: Any = None, load: float = 0.0) -> Any:
    """A servicer whose `Generate` answers so; `end` says whether that is all."""
    found = pb.HealthCheckResponse(healthy=True) if health is None else health

    def answer(number: int, method: str) -> Iterable[bytes]:
        if method == "Generate":
            parts = [message(number, one.SerializeToString()) for one in responses]
            return [begun(number), *parts, *([ended(number)] if end else [])]
        told: Any = {
            "HealthCheck": found,
            "GetLoads": pb.GetLoadsResponse(loads=[pb.SchedulerLoad(token_usage=load)]),
            "GetModelInfo": pb.GetModelInfoResponse(max_context_length=1024),
            "Abort": pb.AbortResponse(),
        }[method]
        return [begun(number), message(number, told.SerializeToString()), ended(number)]

    return answer


@asynccontextmanager
async def loaded(
    tmp_path: Path, *servers: BadServer, **parameters: str
) -> AsyncIterator[RunningInstance]:
    given = {
        "protocol": "vllm",
        "tokenizer": str(CHECKPOINT),
        "health_interval_ms": "60000",
        **parameters,
    }
    address = ",".join(server.address for server in servers)
    async with running(RemoteBackend, entry("m", address, **given), tmp_path) as instance:
        yield instance


@asynccontextmanager
async def asked(
    tmp_path: Path, *responses: Any, **options: Any
) -> AsyncIterator[tuple[BadServer, RunningInstance]]:
    async with (
        bad_server(engine(*responses, **options)) as server,
        loaded(tmp_path, server) as instance,
    ):
        yield server, instance


async def answers(
    instance: RunningInstance, parameters: Any = None, **inputs: Any
) -> list[InferenceResponse]:
    given = {"text_input": "Once", "exclude_input_in_output": STREAM, **inputs}
    if "stream" in inputs or "input_ids" in inputs:
        del given["exclude_input_in_output"]
    return [one async for one in instance.infer(given, parameters or {})]


def texts(responses: list[InferenceResponse]) -> str:
    return b"".join(one.outputs["text_output"].elements()[0] for one in responses).decode()


def request_to(server: BadServer, method: str = "Generate") -> Any:
    at = server.calls.index(method)
    kind = {"Generate": pb.GenerateRequest, "Abort": pb.AbortRequest}[method]
    return kind.FromString(server.sent[at])


async def aborted(server: BadServer) -> bytes:
    """What was sent to abort a request, once it was."""
    async with asyncio.timeout(10):
        while "Abort" not in server.calls:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        at = server.calls.index("Abort")
        while not server.sent[at]:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
    return server.sent[at]


async def test_tokens_go_and_text_comes(tmp_path: Path) -> None:
    made = ids(" upon a time")
    parts = [chunk([token]) for token in made]
    async with asked(tmp_path, *parts, complete(made, "length")) as (server, instance):
        found = await answers(
            instance,
            {"max_tokens": 4, "temperature": 0.0, "penstock_coalesce": False},
            stream=STREAM,
            return_finish_reason=STREAM,
            return_num_output_tokens=STREAM,
            return_num_input_tokens=STREAM,
        )
        request = request_to(server)
        numbers = instance.backend.metrics()
    assert texts(found) == tokenizer.decode(made)
    assert found[-1].outputs["finish_reason"].elements() == [b"length"]
    assert sum(int(one.outputs["num_output_tokens"].numpy()[0]) for one in found) == len(made)
    prompt = list(tokenizer.encode("Once").ids)
    assert list(request.tokenized.input_ids) == prompt
    assert found[-1].outputs["num_input_tokens"].numpy().tolist() == [len(prompt)]
    assert (request.sampling_params.max_tokens, request.sampling_params.temperature) == (4, 0.0)
    assert (request.sampling_params.top_p, request.sampling_params.n) == (1.0, 1)
    assert numbers["penstock_llm_generation_tokens_total"] == len(made)


async def test_whole_answer_may_come_with_its_end(tmp_path: Path) -> None:
    made = ids(" upon a time")
    async with asked(tmp_path, complete(made)) as (_, instance):
        assert texts(await answers(instance)) == tokenizer.decode(made)


async def test_prompt_of_tokens_and_tokens_of_the_answer(tmp_path: Path) -> None:
    made = ids(" upon")
    async with asked(tmp_path, chunk(made), complete(made)) as (server, instance):
        given = {"input_ids": np.array([5, 6], np.int32), "return_token_ids": STREAM}
        [found] = [one async for one in instance.infer(given)]
        assert list(request_to(server).tokenized.input_ids) == [5, 6]
    assert found.outputs["token_ids"].numpy().tolist() == made


async def test_long_prompt_is_tokenized_on_a_thread(tmp_path: Path) -> None:
    made = ids(" x")
    async with asked(tmp_path, complete(made)) as (server, instance):
        await answers(instance, text_input="word " * 2000)
        assert len(request_to(server).tokenized.input_ids) > 1000


async def test_stop_strings_end_the_text(tmp_path: Path) -> None:
    made = ids(" upon a time there was")
    parts = [chunk([token]) for token in made]
    async with asked(tmp_path, *parts, complete(made)) as (server, instance):
        found = await answers(instance, {"stop": [" there"]}, return_stop_reason=STREAM)
        assert list(request_to(server).sampling_params.stop) == [" there"]
    assert texts(found) == tokenizer.decode(made).partition(" there")[0]
    assert json.loads(found[-1].outputs["stop_reason"].elements()[0]) == " there"


async def test_log_probabilities(tmp_path: Path) -> None:
    made = ids(" upon")[:1]
    given = pb.OutputLogProbs(
        token_logprobs=[-0.5],
        token_ids=made,
        top_logprobs=[pb.TopLogProbs(values=[-0.5, -2.0], token_ids=[*made, 7])],
    )
    parts = (chunk(made, output_logprobs=given), complete(made))
    async with asked(tmp_path, *parts) as (server, instance):
        [found] = await answers(instance, return_logprobs=STREAM, return_cumulative_logprob=STREAM)
        assert request_to(server).sampling_params.logprobs == 1
    [place] = json.loads(found.outputs["logprobs"].elements()[0])
    assert place[str(made[0])]["logprob"] == -0.5
    assert place["7"]["rank"] == 2
    assert found.outputs["cumulative_logprob"].numpy().tolist() == [-0.5]


async def test_several_answers(tmp_path: Path) -> None:
    one, two = ids(" a"), ids(" b")
    async with asked(tmp_path, complete(two, index=1), complete(one)) as (_, instance):
        [found] = await answers(instance, {"n": 2})
    assert found.outputs["text_output"].elements() == [
        tokenizer.decode(one).encode(),
        tokenizer.decode(two).encode(),
    ]


@pytest.mark.parametrize(
    ("given", "field", "value"),
    [
        ({"regex": "[ab]"}, "regex", "[ab]"),
        ({"json": {"type": "object"}}, "json_schema", '{"type": "object"}'),
        ({"json_object": True}, "json_object", True),
        ({"choice": ["a", "b"]}, "choice", pb.ChoiceConstraint(choices=["a", "b"])),
    ],
)
async def test_structure_of_the_output(tmp_path: Path, given: Any, field: str, value: Any) -> None:
    sampling = json.dumps({"structured_outputs": given})
    async with asked(tmp_path, complete(ids(" a"))) as (server, instance):
        await answers(instance, sampling_parameters=sampling)
        assert getattr(request_to(server).sampling_params, field) == value


@pytest.mark.parametrize(
    ("parameters", "told"),
    [
        ({"temperture": 1}, "'temperture' is not supported by the remote"),
        ({"n": 0}, "'n' must be from 1 to 128"),
        ({"structured_outputs": {"odd": 1}}, "unknown constraint 'odd'"),
        ({"structured_outputs": "x"}, "must be an object with one constraint"),
        ({"min_tokens": -1}, "cannot be sent"),
    ],
)
async def test_what_cannot_be_asked_is_named(tmp_path: Path, parameters: Any, told: str) -> None:
    async with asked(tmp_path, complete([])) as (server, instance):
        with pytest.raises(InvalidRequestError, match=told):
            await answers(instance, sampling_parameters=json.dumps(parameters))
        assert "Generate" not in server.calls


async def test_reader_that_leaves_has_the_request_aborted(tmp_path: Path) -> None:
    async with asked(tmp_path, chunk(ids(" upon")), end=False) as (server, instance):
        responses = instance.infer({"text_input": "Once", "stream": STREAM})
        await anext(responses)
        await responses.aclose()
        await aborted(server)
        request = request_to(server)
        assert list(request_to(server, "Abort").request_ids) == [request.request_id]
        assert server.resets


@pytest.mark.parametrize(
    ("responses", "kind", "told"),
    [
        ((complete([], "abort"),), UnavailableError, "ended the request: abort"),
        ((chunk([5]),), UnavailableError, "ended before its end"),
        ((chunk([5], index=9),), InternalError, "the remote's answer is none"),
    ],
)
async def test_failures(
    tmp_path: Path, responses: Any, kind: type[InferenceError], told: str
) -> None:
    async with asked(tmp_path, *responses) as (_, instance):
        with pytest.raises(kind, match=told):
            await answers(instance)


async def test_another_address_is_asked_with_another_id(tmp_path: Path) -> None:
    def full(number: int, method: str) -> Iterable[bytes]:
        if method == "Generate":
            return [ended(number, 14, "full")]
        return list(good(number, method))

    good: Callable[[int, str], Iterable[bytes]] = engine(complete(ids(" a")))
    async with (
        bad_server(full) as one,
        bad_server(good) as two,
        loaded(tmp_path, one, two) as instance,
    ):
        for _ in range(4):
            await answers(instance)
        sent = {request_to(server).request_id for server in (one, two)}
        assert len(sent) == 2


async def test_engine_that_is_ill_is_not_ready(tmp_path: Path) -> None:
    health = pb.HealthCheckResponse(healthy=False, message="out of memory")
    async with asked(tmp_path, health=health) as (_, instance):
        assert "out of memory" in instance.backend.unready()


@pytest.mark.parametrize(("told", "places"), [(8, 16.0), (0, None), (-5, None)])
async def test_places_are_those_of_all_addresses_that_tell_theirs(
    tmp_path: Path, told: int, places: float | None
) -> None:
    one_load = pb.SchedulerLoad(max_running_requests=told)

    def answer(number: int, method: str) -> Iterable[bytes]:
        if method != "GetLoads":
            return list(good(number, method))
        loads = pb.GetLoadsResponse(loads=[one_load])
        return [begun(number), message(number, loads.SerializeToString()), ended(number)]

    good: Callable[[int, str], Iterable[bytes]] = engine(complete(ids(" a")))
    async with (
        bad_server(answer) as one,
        bad_server(answer) as two,
        loaded(tmp_path, one, two) as instance,
    ):
        numbers = instance.backend.metrics()
    assert numbers.get("penstock_llm_max_running_requests") == places


async def test_load_of_the_engine_is_weighed(tmp_path: Path) -> None:
    busy, idle = engine(complete(ids(" a")), load=0.9), engine(complete(ids(" a")))
    async with (
        bad_server(busy) as one,
        bad_server(idle) as two,
        loaded(tmp_path, one, two) as instance,
    ):
        for _ in range(8):
            await answers(instance)
        assert "Generate" not in one.calls


async def test_prompts_that_begin_alike_meet(tmp_path: Path) -> None:
    answer = engine(complete(ids(" a")))
    async with (
        bad_server(answer) as one,
        bad_server(answer) as two,
        bad_server(answer) as three,
        loaded(tmp_path, one, two, three, prefix_tokens="4") as instance,
    ):
        servers = (one, two, three)
        used: dict[int, set[int]] = {}
        for turn in range(3):
            for start in range(12):
                before = [server.calls.count("Generate") for server in servers]
                prompt = np.array([start + 5, 6, 7, 8, turn + 9], np.int32)
                [_] = [x async for x in instance.infer({"input_ids": prompt})]
                after = [server.calls.count("Generate") for server in servers]
                [at] = [n for n in range(3) if after[n] > before[n]]
                used.setdefault(start, set()).add(at)
    assert all(len(places) == 1 for places in used.values())
    assert len(set.union(*used.values())) > 1


async def test_a_prefix_chooses_for_engines_only(tmp_path: Path) -> None:
    async with bad_server(engine()) as server:
        with pytest.raises(ConfigError, match="'prefix_tokens' is for the protocols of"):
            async with loaded(tmp_path, server, protocol="kserve", prefix_tokens="4"):
                pass


async def test_without_a_tokenizer_it_is_refused(tmp_path: Path) -> None:
    async with bad_server(engine()) as server:
        with pytest.raises(ModelLoadError, match=r"needs a tokenizer.*tokenizer\.json"):
            async with loaded(tmp_path, server, tokenizer=""):
                pass


async def test_unknown_protocol_is_named(tmp_path: Path) -> None:
    async with bad_server(engine()) as server:
        with pytest.raises(
            ConfigError, match="'protocol' must be one of kserve, vllm, vllm_inference, sglang,"
        ):
            async with loaded(tmp_path, server, protocol="odd"):
                pass


async def test_package_that_is_missing_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "smg_grpc_proto.generated.vllm_engine_pb2", None)
    async with bad_server(engine()) as server:
        with pytest.raises(BackendNotInstalledError, match="pip install smg-grpc-proto"):
            async with loaded(tmp_path, server):
                pass


# -- SGLang's service ------------------------------------------------------------------------------


def scheduler(sg: Any, *responses: Any) -> Any:
    """A servicer of SGLang's, whose `Generate` answers so."""

    def answer(number: int, method: str) -> Iterable[bytes]:
        told: list[Any] = {
            "HealthCheck": [sg.HealthCheckResponse(healthy=True)],
            "GetLoads": [sg.GetLoadsResponse()],
            "GetModelInfo": [sg.GetModelInfoResponse()],
            "Abort": [sg.AbortResponse(success=True)],
            "Generate": list(responses),
        }[method]
        parts = [message(number, one.SerializeToString()) for one in told]
        return [begun(number), *parts, *([ended(number)] if method != "Generate" else [])]

    return answer


async def test_sglangs_scheduler_is_asked_in_its_own_names(tmp_path: Path) -> None:
    sg = pytest.importorskip("smg_grpc_proto.generated.sglang_scheduler_pb2")
    made = ids(" upon a time")
    parts = [sg.GenerateResponse(chunk=sg.GenerateStreamChunk(token_ids=[one])) for one in made]
    end = sg.GenerateResponse(complete=sg.GenerateComplete(output_ids=made, finish_reason="stop"))
    async with (
        bad_server(scheduler(sg, *parts, end)) as server,
        loaded(tmp_path, server, protocol="sglang") as instance,
    ):
        given = {"max_tokens": 9, "min_tokens": 1, "stop": ["zzz"]}
        assert texts(await answers(instance, given)) == tokenizer.decode(made)
        request = sg.GenerateRequest.FromString(server.sent[server.calls.index("Generate")])
        with pytest.raises(InvalidRequestError, match="'seed' is not supported by the remote's"):
            await answers(instance, {"seed": 3})
    sampling = request.sampling_params
    assert (sampling.max_new_tokens, sampling.min_new_tokens) == (9, 1)
    assert (sampling.temperature, sampling.top_p, sampling.top_k) == (1.0, 1.0, -1)
    assert list(sampling.stop) == ["zzz"]
    assert list(request.tokenized.input_ids) == list(tokenizer.encode("Once").ids)


async def test_sglangs_scheduler_is_told_to_abort(tmp_path: Path) -> None:
    sg = pytest.importorskip("smg_grpc_proto.generated.sglang_scheduler_pb2")
    first = sg.GenerateResponse(chunk=sg.GenerateStreamChunk(token_ids=ids(" upon")))
    async with (
        bad_server(scheduler(sg, first)) as server,
        loaded(tmp_path, server, protocol="sglang") as instance,
    ):
        responses = instance.infer({"text_input": "Once", "stream": STREAM})
        await anext(responses)
        await responses.aclose()
        abort = sg.AbortRequest.FromString(await aborted(server))
        asked = sg.GenerateRequest.FromString(server.sent[server.calls.index("Generate")])
    assert abort.request_id == asked.request_id


# -- TensorRT-LLM's service ------------------------------------------------------------------------


def trtllm(trt: Any, *responses: Any, status: str = "OK", end: bool = True) -> Any:
    """A servicer of TensorRT-LLM's, whose `Generate` answers so."""

    def answer(number: int, method: str) -> Iterable[bytes]:
        told: list[Any] = {
            "HealthCheck": [trt.HealthCheckResponse(status=status)],
            "GetModelInfo": [trt.GetModelInfoResponse(max_seq_len=1024)],
            "Abort": [trt.AbortResponse(success=True)],
            "Generate": list(responses),
        }[method]
        parts = [message(number, one.SerializeToString()) for one in told]
        ends = [ended(number)] if end or method != "Generate" else []
        return [begun(number), *parts, *ends]

    return answer


async def test_tensorrt_llms_service_is_asked_in_its_own_names(tmp_path: Path) -> None:
    trt = pytest.importorskip("smg_grpc_proto.generated.trtllm_service_pb2")
    made = ids(" upon a time")
    place = trt.TokenLogprob(
        token_id=made[0], logprob=-0.5, top_logprobs=[trt.TopLogprob(token_id=7, logprob=-2.0)]
    )
    chunk = trt.GenerateStreamChunk(token_ids=made[:1], logprobs=[place], cached_tokens=3)
    complete = trt.GenerateComplete(
        output_token_ids=made, finish_reason="stop_word", matched_stop_str="zzz"
    )
    answer = trtllm(trt, trt.GenerateResponse(chunk=chunk), trt.GenerateResponse(complete=complete))
    async with (
        bad_server(answer) as server,
        loaded(tmp_path, server, protocol="trtllm") as instance,
    ):
        given = {"max_tokens": 9, "min_tokens": 1, "stop": ["zzz"], "top_k": 4, "seed": 3}
        [found] = await answers(instance, given, return_logprobs=STREAM, return_stop_reason=STREAM)
        request = trt.GenerateRequest.FromString(server.sent[server.calls.index("Generate")])
        with pytest.raises(InvalidRequestError, match="'truncate_prompt_tokens' is not supported"):
            await answers(instance, {"truncate_prompt_tokens": 3})
    assert texts([found]) == tokenizer.decode(made)
    assert json.loads(found.outputs["stop_reason"].elements()[0]) == "zzz"
    [told] = json.loads(found.outputs["logprobs"].elements()[0])
    assert (told[str(made[0])]["logprob"], told["7"]["rank"]) == (-0.5, 1)
    sampling = request.sampling_config
    assert (request.max_tokens, request.streaming, list(request.stop)) == (9, True, ["zzz"])
    assert (sampling.min_tokens, sampling.top_k, sampling.seed) == (1, 4, 3)
    assert (sampling.num_return_sequences, request.output_config.logprobs) == (1, 1)
    assert list(request.tokenized.input_token_ids) == list(tokenizer.encode("Once").ids)


@pytest.mark.parametrize(
    ("given", "kind", "guide"),
    [
        ({"json_object": True}, "GUIDE_TYPE_JSON", ""),
        ({"json": {"type": "object"}}, "GUIDE_TYPE_JSON_SCHEMA", '{"type": "object"}'),
        ({"grammar": "root ::= x"}, "GUIDE_TYPE_EBNF_GRAMMAR", "root ::= x"),
    ],
)
async def test_structure_by_tensorrt_llm(tmp_path: Path, given: Any, kind: str, guide: str) -> None:
    trt = pytest.importorskip("smg_grpc_proto.generated.trtllm_service_pb2")
    end = trt.GenerateResponse(complete=trt.GenerateComplete(output_token_ids=ids(" a")))
    async with (
        bad_server(trtllm(trt, end)) as server,
        loaded(tmp_path, server, protocol="trtllm") as instance,
    ):
        await answers(instance, sampling_parameters=json.dumps({"structured_outputs": given}))
        request = trt.GenerateRequest.FromString(server.sent[server.calls.index("Generate")])
    told = request.guided_decoding
    assert (told.guide_type, told.guide) == (trt.GuidedDecodingParams.GuideType.Value(kind), guide)


async def test_tensorrt_llm_is_told_to_abort_and_says_how_it_is(tmp_path: Path) -> None:
    trt = pytest.importorskip("smg_grpc_proto.generated.trtllm_service_pb2")
    first = trt.GenerateStreamChunk(token_ids=ids(" upon"))
    going = trtllm(trt, trt.GenerateResponse(chunk=first), end=False)
    async with bad_server(going) as server, loaded(tmp_path, server, protocol="trtllm") as instance:
        responses = instance.infer({"text_input": "Once", "stream": STREAM})
        await anext(responses)
        await responses.aclose()
        abort = trt.AbortRequest.FromString(await aborted(server))
        asked = trt.GenerateRequest.FromString(server.sent[server.calls.index("Generate")])
    assert abort.request_id == asked.request_id
    async with (
        bad_server(trtllm(trt, status="shutting down")) as server,
        loaded(tmp_path, server, protocol="trtllm") as instance,
    ):
        assert "shutting down" in instance.backend.unready()
