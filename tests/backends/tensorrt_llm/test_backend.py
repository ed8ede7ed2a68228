"""Answers of the backend, over a stand-in that checks each call."""

from __future__ import annotations

import asyncio
import itertools

import numpy as np
import pytest

from backends.generation import until
from backends.tensorrt_llm.asking import ask, llm, on, opened, sampling, text
from backends.tensorrt_llm.conftest import WriteModel
from penstock.core.config import ModelConfig
from penstock.core.errors import (
    InvalidRequestError,
    RequestCancelledError,
)
from penstock.core.tensor import DataType
from penstock.testing import RunningInstance

pytestmark = [pytest.mark.usefixtures("stand_in"), pytest.mark.usefixtures("release")]


@pytest.mark.contract("TL-03")
async def test_an_answer_in_one_piece(instance: RunningInstance) -> None:
    (response,) = await ask(instance, **sampling(max_tokens=3))
    assert text(response) == " w0 w1 w2"
    assert response.final
    assert set(response.outputs) == {"text_output"}


@pytest.mark.contract("TL-05")
async def test_a_stream_repeats_the_text_so_far(instance: RunningInstance) -> None:
    responses = await ask(instance, **on("streaming"), **sampling(max_tokens=3))
    texts = [text(one) for one in responses]
    assert texts[-1] == " w0 w1 w2"
    assert all(after.startswith(before) for before, after in itertools.pairwise(texts))
    assert [one.final for one in responses] == [False] * (len(texts) - 1) + [True]


@pytest.mark.contract("AC-11")
async def test_a_model_that_batches_has_the_dimension(version: WriteModel) -> None:
    config = ModelConfig(name="m", max_batch_size=4)
    async with opened(version(), config) as instance:
        given = {name: one[None] for name, one in sampling(max_tokens=3).items()}
        given["text_input"] = np.array([["hello"]], np.object_)
        (response,) = [one async for one in instance.infer(given)]
        assert response.outputs["text_output"].shape == (1, 1)
        assert text(response) == " w0 w1 w2"
        two = {name: np.concatenate([one, one]) for name, one in given.items()}
        with pytest.raises(InvalidRequestError):
            [one async for one in instance.infer(two)]


async def test_a_slow_reader_gets_the_latest_text(instance: RunningInstance) -> None:
    answers = instance.infer({"text_input": "hello", **on("streaming"), **sampling(max_tokens=40)})
    first = await anext(answers)
    await until(lambda: llm(instance).active == 0)
    rest = [text(one) async for one in answers]
    assert text(first) == " w0"
    assert len(rest) < 10
    assert rest[-1].count(" w") == 40


async def test_each_token_has_a_response_where_it_is_asked_for(instance: RunningInstance) -> None:
    inputs = {"text_input": "hello", **on("streaming"), **sampling(max_tokens=40)}
    answers = instance.infer(inputs, {"penstock_coalesce": False})
    assert len([one async for one in answers]) == 40


@pytest.mark.contract("TL-05", "TL-07")
async def test_a_stream_needs_a_decoupled_model(version: WriteModel) -> None:
    async with opened(version("model: tiny\ntriton_config: {decoupled: false}")) as instance:
        with pytest.raises(InvalidRequestError) as refused:
            await ask(instance, **on("streaming"))
        assert refused.value.message == (
            "Error generating request: Streaming is only supported in decoupled mode."
        )
        assert text((await ask(instance, **sampling(max_tokens=1)))[0]) == " w0"


@pytest.mark.contract("TL-03")
async def test_sampling_reaches_the_engine(instance: RunningInstance) -> None:
    given = sampling(max_tokens=5, temperature=0.5, top_k=7, top_p=0.25, seed=2**64 - 1, best_of=2)
    (response,) = await ask(
        instance,
        **given,
        **on("return_finish_reason", "return_stop_reason"),
        sampling_param_stop=["w2", "never"],
    )
    got = llm(instance).sampling
    assert (got.max_tokens, got.temperature, got.top_k, got.top_p) == (5, 0.5, 7, 0.25)
    assert (got.seed, got.best_of, got.stop) == (2**64 - 1, 2, ["w2", "never"])
    assert (got.exclude_input_from_output, got.return_perf_metrics) == (False, False)
    assert text(response) == " w0 w1 "
    assert response.outputs["finish_reason"].elements() == [b"stop"]
    assert response.outputs["stop_reason"].elements() == [b"w2"]


@pytest.mark.contract("TL-04")
async def test_numbers_have_the_declared_datatypes(instance: RunningInstance) -> None:
    """Upstream sends each as text."""
    (response,) = await ask(
        instance,
        **sampling(max_tokens=2),
        **on("return_cumulative_logprob", "sampling_param_return_perf_metrics"),
    )
    got = {
        name: (tensor.datatype, tensor.numpy().tolist())
        for name, tensor in response.outputs.items()
        if name != "text_output"
    }
    days = 30 * 86400 * 10**9
    assert got == {
        "cumulative_logprob": (DataType.FP32, [-1.0]),
        "kv_cache_reused_block": (DataType.INT32, [3]),
        "kv_cache_missed_block": (DataType.INT32, [1]),
        "kv_cache_alloc_new_blocks": (DataType.INT32, [2]),
        "kv_cache_alloc_total_blocks": (DataType.INT32, [5]),
        "kv_cache_hit_rate": (DataType.FP32, [0.75]),
        "arrival_time_ns": (DataType.INT64, [days + 1000]),
        "first_scheduled_time_ns": (DataType.INT64, [days + 2000]),
        "first_token_time_ns": (DataType.INT64, [days + 3000]),
        "last_token_time_ns": (DataType.INT64, [days + 4000]),
        "acceptance_rate": (DataType.FP32, [0.5]),
        "total_accepted_draft_tokens": (DataType.INT32, [7]),
        "total_draft_tokens": (DataType.INT32, [14]),
    }


@pytest.mark.contract("TL-06")
async def test_a_stop_request_ends_the_one_with_its_id(instance: RunningInstance) -> None:
    inputs = {"text_input": "@endless", **on("streaming")}
    asked, other = instance.infer(inputs, id="7"), instance.infer(inputs, id="8")
    await anext(asked)
    await anext(other)
    with pytest.raises(RequestCancelledError, match=r"^Request cancelled by client$"):
        await ask(instance, "", id="7", **on("stop"))
    with pytest.raises(RequestCancelledError, match=r"^Request cancelled by client$"):
        _ = [one async for one in asked]
    await until(lambda: llm(instance).active == 1)
    assert text(await anext(other))
    await other.aclose()


@pytest.mark.contract("TL-06")
async def test_a_stop_request_needs_an_id(instance: RunningInstance) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        await ask(instance, **on("stop"))
    assert refused.value.message == "A request id must be provided for request cancellation"


@pytest.mark.contract("TL-23")
async def test_a_client_that_leaves_ends_its_request_at_once(instance: RunningInstance) -> None:
    answers = instance.infer({"text_input": "@endless", **on("streaming")})
    await anext(answers)
    await answers.aclose()
    assert llm(instance).requests[-1].aborted()
    await until(lambda: llm(instance).active == 0)
    metrics = instance.backend.metrics()
    assert metrics["penstock_llm_cancelled_requests_total"] == 1
    assert metrics["penstock_llm_running_requests"] == 0


async def test_clients_that_leave_do_not_disturb_others(instance: RunningInstance) -> None:
    leaving = [instance.infer({"text_input": "@endless", **on("streaming")}) for _ in range(5)]
    staying = asyncio.create_task(ask(instance, **sampling(max_tokens=30)))
    for answers in leaving:
        await anext(answers)
        await answers.aclose()
    (response,) = await staying
    assert text(response).count(" w") == 30
    await until(lambda: llm(instance).active == 0)
