"""`Generate`, `Embed` and `Abort` of vLLM's engine service, asked by the stub of real routers."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest

from fakes import InstallBackend, until
from penstock.server.server import InferenceServer
from penstock.settings import GrpcSettings
from rpc.engine.scripted import (
    CONTEXT,
    FAILS,
    FIRST,
    WAITS,
    ScoringBackend,
    ScriptedBackend,
    answers,
    asking,
    failure,
    pb,
    structure,
    stub_of,
    write_models,
)
from rpc.serving import open_models


async def test_tokens_come_as_they_are_made_and_then_the_end(stub: Any) -> None:
    *chunks, end = await answers(stub, asking())
    assert [list(one.chunk.token_ids) for one in chunks] == [[FIRST], [FIRST + 1], [FIRST + 2]]
    assert {(one.chunk.prompt_tokens, one.chunk.completion_tokens) for one in chunks} == {(2, 1)}
    assert (end.complete.finish_reason, end.complete.prompt_tokens) == ("length", 2)
    assert list(end.complete.output_ids) == [FIRST + 2]


async def test_without_a_stream_there_is_one_message(stub: Any) -> None:
    [end] = await answers(stub, asking(stream=False))
    assert list(end.complete.output_ids) == [FIRST, FIRST + 1, FIRST + 2]
    assert (end.complete.completion_tokens, end.complete.prompt_tokens) == (3, 2)


async def test_several_answers_are_told_apart(stub: Any) -> None:
    ends = await answers(stub, asking(stream=False, n=2, max_tokens=2))
    assert {one.complete.index: list(one.complete.output_ids) for one in ends} == {
        0: [FIRST, FIRST + 1],
        1: [FIRST + 100, FIRST + 101],
    }


async def test_a_prompt_may_be_text(stub: Any) -> None:
    request = pb.GenerateRequest(text="Once upon", sampling_params=pb.SamplingParams(max_tokens=1))
    [end] = await answers(stub, request)
    assert (list(end.complete.output_ids), end.complete.prompt_tokens) == ([FIRST], 2)
    assert ScriptedBackend.asked[0].prompt == "Once upon"


async def test_zeros_of_the_message_mean_what_they_mean_to_vllm(stub: Any) -> None:
    await answers(stub, asking())
    assert structure(ScriptedBackend.asked[0]) == {"max_tokens": 3}


async def test_without_a_length_the_answer_may_fill_the_context(stub: Any) -> None:
    request = asking(stream=False)
    request.sampling_params.ClearField("max_tokens")
    await answers(stub, request)
    assert structure(ScriptedBackend.asked[0]) == {"max_tokens": CONTEXT - 2}


async def test_sampling_parameters_keep_their_names(stub: Any) -> None:
    given: Any = {"temperature": 0.0, "top_p": 0.5, "top_k": 4, "min_p": 0.25, "min_tokens": 1}
    more: Any = {"presence_penalty": 1.0, "repetition_penalty": 1.5, "seed": 7, "ignore_eos": True}
    await answers(stub, asking(**given, **more, stop_token_ids=[9], logit_bias={3: -1.0}))
    assert structure(ScriptedBackend.asked[0]) == {
        "max_tokens": 3,
        "stop_token_ids": [9],
        "logit_bias": {"3": -1.0},
        **given,
        **more,
    }


async def test_the_stop_that_was_found_is_told(stub: Any) -> None:
    *_, end = await answers(stub, asking(stop=["zz"]))
    assert (end.complete.finish_reason, end.complete.matched_stop_str) == ("stop", "zz")


@pytest.mark.parametrize(
    ("given", "asked"),
    [
        ({"json_schema": "{}"}, {"json": "{}"}),
        ({"regex": "a+"}, {"regex": "a+"}),
        ({"grammar": "root ::= x"}, {"grammar": "root ::= x"}),
        ({"structural_tag": "{}"}, {"structural_tag": "{}"}),
        ({"json_object": True}, {"json_object": True}),
        ({"choice": pb.ChoiceConstraint(choices=["a", "b"])}, {"choice": ["a", "b"]}),
    ],
)
async def test_structured_outputs(stub: Any, given: Any, asked: Any) -> None:
    await answers(stub, asking(**given, grammar_from_first_token=True))
    assert structure(ScriptedBackend.asked[0])["structured_outputs"] == asked


async def test_the_end_of_a_prompt_is_kept_where_it_is_cut(stub: Any) -> None:
    await answers(stub, asking([4, 5, 6], truncate_prompt_tokens=2))
    assert ScriptedBackend.asked[0].input_ids is not None
    assert ScriptedBackend.asked[0].input_ids.tolist() == [5, 6]


async def test_log_probabilities_are_of_the_tokens_that_are_kept(
    tmp_path: Path, install_backend: InstallBackend, local: GrpcSettings
) -> None:
    install_backend("scripted", ScoringBackend)
    request = asking([4, 5, 6], stream=False, truncate_prompt_tokens=2, prompt_logprobs=0)
    async with (
        open_models(write_models(tmp_path / "models", "numbers")) as server,
        stub_of(server, local) as stub,
    ):
        [end] = await answers(stub, request)
    told = end.complete.input_logprobs
    assert list(told.token_ids) == [5, 6]
    assert [one.value for one in told.token_logprobs if one.HasField("value")] == [-6.0]


async def test_a_prompt_is_not_cut_to_a_context_that_nobody_knows(
    stub: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = replace(ScriptedBackend.facts, context_length=0)
    monkeypatch.setattr(ScriptedBackend, "facts", facts)
    code, text = await failure(answers(stub, asking([4, 5], truncate_prompt_tokens=-1)))
    assert (code, "not known" in text) == (grpc.StatusCode.INVALID_ARGUMENT, True)


async def test_log_probabilities(stub: Any) -> None:
    *_, last, _ = await answers(stub, asking(logprobs=2))
    told = last.chunk.output_logprobs
    assert (list(told.token_ids), list(told.token_logprobs)) == ([FIRST + 2], [-0.5])
    assert [list(one.token_ids) for one in told.top_logprobs] == [[FIRST + 2, 7]]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("mm_inputs", {"mm_hashes": ["x"]}),
        ("media_refs", {"items": [{"url": "http://x"}]}),
        ("extra_mm_inputs", [{"mm_hashes": ["x"]}]),
        ("kv_transfer_params", {"remote_host": "x"}),
        ("kv_transfer_params_json", "{}"),
        ("sampling_params", {"prompt_logprobs": 1}),
    ],
)
async def test_a_field_that_cannot_be_kept_is_named(stub: Any, field: str, value: Any) -> None:
    request = asking()
    request.MergeFrom(pb.GenerateRequest(**{field: value}))
    code, text = await failure(answers(stub, request))
    assert code is grpc.StatusCode.UNIMPLEMENTED
    assert ("prompt_logprobs" if field == "sampling_params" else field) in text


@pytest.mark.parametrize(
    ("tokens", "sampling", "text"),
    [
        ([], {}, "the prompt is empty"),
        ([1 << 31], {}, "which is no token id"),
        ([1], {"n": 5000}, "'n' must be at most"),
        ([1], {"truncate_prompt_tokens": 0}, "must be -1 or positive"),
    ],
)
async def test_what_is_wrong_is_told(stub: Any, tokens: Any, sampling: Any, text: str) -> None:
    code, told = await failure(answers(stub, asking(tokens, **sampling)))
    assert (code, text in told) == (grpc.StatusCode.INVALID_ARGUMENT, True)


async def test_an_engine_that_fails_ends_the_call_with_its_code(stub: Any) -> None:
    code, text = await failure(answers(stub, asking([FAILS])))
    assert code is grpc.StatusCode.UNAVAILABLE
    assert text.endswith("the engine is gone")


async def test_a_client_that_leaves_stops_the_generation(
    stub: Any, server: InferenceServer
) -> None:
    call = stub.Generate(asking([WAITS]), timeout=30)
    await call.read()
    call.cancel()
    await until(lambda: ScriptedBackend.left == [[WAITS]])
    assert _in_flight(server) == 0


async def test_an_aborted_request_ends_with_what_it_has(stub: Any, server: InferenceServer) -> None:
    calls = [stub.Generate(asking([WAITS, n], id=f"r{n}"), timeout=30) for n in (1, 2)]
    for call in calls:
        await call.read()
    await stub.Abort(pb.AbortRequest(request_ids=["r1", "unknown"]))
    end = await calls[0].read()
    assert end.complete.finish_reason == "abort"
    assert await calls[0].code() is grpc.StatusCode.OK
    assert (ScriptedBackend.left, _in_flight(server)) == ([[WAITS, 1]], 1)
    calls[1].cancel()


@pytest.mark.slow
async def test_a_router_that_cancels_half_leaves_nothing_behind(
    stub: Any, server: InferenceServer
) -> None:
    async def ask(number: int) -> int:
        if number % 2:
            return len(await answers(stub, asking()))
        call = stub.Generate(asking([WAITS], id=str(number)), timeout=30)
        await call.read()
        if number % 4 == 0:
            call.cancel()
            return 0
        await stub.Abort(pb.AbortRequest(request_ids=[str(number)]))
        end = await call.read()
        return int(end.complete.finish_reason == "abort")

    counts = await asyncio.gather(*[ask(number) for number in range(200)])
    assert sorted(counts) == [0] * 50 + [1] * 50 + [4] * 100
    await until(lambda: not _in_flight(server))
    assert len(ScriptedBackend.left) == 100


async def test_a_model_that_is_unloaded_meanwhile_ends_its_requests(
    stub: Any, server: InferenceServer
) -> None:
    call = stub.Generate(asking([WAITS], id="r1"), timeout=30)
    await call.read()
    unloading = asyncio.ensure_future(server._lifecycle.unload("numbers", unload_dependents=False))
    await asyncio.sleep(0)
    code, _ = await failure(answers(stub, asking()))
    assert code is grpc.StatusCode.UNAVAILABLE
    await stub.Abort(pb.AbortRequest(request_ids=["r1"]))  # which finds it all the same
    end = await call.read()
    assert end.complete.finish_reason == "abort"
    await unloading


async def test_a_huge_prompt_is_refused_and_harms_nobody(stub: Any) -> None:
    code, text = await failure(answers(stub, asking([5] * (3 << 20))))
    assert (code, "the model's context" in text) == (grpc.StatusCode.INVALID_ARGUMENT, True)
    assert len(await answers(stub, asking())) == 4


async def test_the_ids_of_several_requests_may_be_the_same(
    stub: Any, server: InferenceServer
) -> None:
    calls = [stub.Generate(asking([WAITS], id="same"), timeout=30) for _ in range(3)]
    for call in calls:
        await call.read()
    calls.pop().cancel()
    await until(lambda: _in_flight(server) == 2)
    await stub.Abort(pb.AbortRequest(request_ids=["same", "same"]))
    assert [(await call.read()).complete.finish_reason for call in calls] == ["abort", "abort"]


async def test_an_abort_before_its_request_is_none(stub: Any) -> None:
    await stub.Abort(pb.AbortRequest(request_ids=["", "r1"]))
    assert len(await answers(stub, asking(id="r1"))) == 4


async def test_requests_without_an_id_are_not_aborted(stub: Any, server: InferenceServer) -> None:
    """By whoever sends an abort of nothing."""
    call = stub.Generate(asking([WAITS]), timeout=30)
    await call.read()
    await stub.Abort(pb.AbortRequest(request_ids=[""]))
    assert _in_flight(server) == 1
    call.cancel()


async def test_a_model_that_embeds(stub: Any) -> None:
    request = pb.EmbedRequest(tokenized=pb.TokenizedInput(input_ids=[3, 4, 5]))
    found = await stub.Embed(request)
    assert (list(found.embedding), found.embedding_dim) == ([3.0, 4.0, 5.0], 3)
    assert found.prompt_tokens == 3


def _in_flight(server: InferenceServer) -> int:
    return sum(one.statistics.in_flight for one in server.snapshot())
