"""Requests to an in-process server: iterators, queues, cancellation, errors."""

from __future__ import annotations

import asyncio
import gc
import json
import queue
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock.in_process as tritonserver
from harness.serving import wait_until


def _array(tensor: Any) -> Any:
    return np.from_dlpack(tensor)


def _story(tokens: int, note: Path | None = None, **others: Any) -> dict[str, Any]:
    options = {"max_tokens": tokens, **others, **({"note": str(note)} if note else {})}
    return {"text_input": ["w"], "sampling_parameters": [json.dumps(options)]}


def _repeat(*values: int) -> dict[str, Any]:
    return {
        "IN": np.array(values, np.int32),
        "DELAY": np.zeros(len(values), np.uint32),
        "WAIT": np.zeros(1, np.uint32),
    }


@pytest.mark.contract("API-03", "API-05")
def test_a_model_answers(server: tritonserver.Server) -> None:
    numbers = np.arange(4, dtype=np.float32).reshape(1, 2, 2)
    inputs = {"NUMBERS": numbers, "TEXT": [["a", "é"]]}
    (response,) = server.model("copy").infer(inputs=inputs, request_id="r")
    assert (response.request_id, response.final, response.error) == ("r", True, None)
    assert (response.model.name, response.model.version) == ("copy", 1)
    assert np.array_equal(_array(response.outputs["NUMBERS"]), numbers)
    assert response.outputs["TEXT"].to_string_array().tolist() == [["a", "é"]]


@pytest.mark.contract("API-04")
def test_requests_are_objects_too(server: tritonserver.Server) -> None:
    request = server.models()["copy"].create_request(model="ignored", priority=0)
    request.inputs["SMALL"] = tritonserver.Tensor.from_dlpack(np.array([[5]], np.int8))
    (response,) = server.model("copy", 1).infer(request)
    assert _array(response.outputs["SMALL"]).tolist() == [[5]]
    assert tritonserver.InferenceRequest(server.model("copy")).inputs == {}


@pytest.mark.contract("API-06")
def test_decoupled_models_end_with_a_final_response(server: tritonserver.Server) -> None:
    responses = list(server.model("repeat").infer(inputs=_repeat(4, 2)))
    assert [_array(r.outputs["OUT"]).tolist() for r in responses[:2]] == [[4], [2]]
    assert [r.final for r in responses] == [False, False, True]


@pytest.mark.contract("API-06", "API-03")
async def test_responses_come_to_coroutines(server: tritonserver.Server) -> None:
    story = server.model("story")
    texts = [
        r.outputs["text_output"].to_string_array()[0]
        async for r in story.async_infer(inputs=_story(3))
        if r.outputs
    ]
    assert texts == ["w0 ", "w1 ", "w2 "]


@pytest.mark.contract("API-04", "API-06")
async def test_a_coroutine_sends_a_request_and_finds_errors_in_responses(
    server: tritonserver.Server,
) -> None:
    story = server.model("story")
    request = story.create_request(inputs=_story(1, fails=True))
    responses = [each async for each in story.async_infer(request, raise_on_error=False)]
    assert "no end" in str(responses[-1].error)
    with pytest.raises(tritonserver.TritonError, match="no end"):
        _ = [each async for each in story.async_infer(inputs=_story(1, fails=True))]


@pytest.mark.contract("API-06", "API-08")
def test_a_cancelled_request_stops_and_says_so(server: tritonserver.Server, tmp_path: Path) -> None:
    note = tmp_path / "note"
    responses = server.model("story").infer(inputs=_story(1, note))
    next(responses)
    responses.cancel()
    with pytest.raises(tritonserver.CancelledError):
        next(responses)
    wait_until(note.exists)
    assert list(responses) == []


async def test_a_coroutine_that_is_cancelled_can_leave(
    server: tritonserver.Server, tmp_path: Path
) -> None:
    note = tmp_path / "note"
    responses = server.model("story").async_infer(inputs=_story(1, note))
    await anext(responses)
    waiting = asyncio.ensure_future(anext(responses))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    responses.cancel()
    await asyncio.to_thread(wait_until, note.exists)


@pytest.mark.slow
def test_leaving_a_loop_cancels(server: tritonserver.Server, tmp_path: Path) -> None:
    note = tmp_path / "note"
    for _ in server.model("story").infer(inputs=_story(1, note)):
        break
    gc.collect()
    wait_until(note.exists)


@pytest.mark.slow
def test_a_request_whose_responses_nobody_reads_runs(server: tritonserver.Server) -> None:
    before = server.model("repeat").statistics()["model_stats"][0]["inference_count"]
    server.model("repeat").infer(inputs=_repeat(1))
    gc.collect()
    model = server.model("repeat")
    wait_until(lambda: model.statistics()["model_stats"][0]["inference_count"] == before + 1)


@pytest.mark.contract("API-05")
def test_errors_of_responses(server: tritonserver.Server) -> None:
    story = server.model("story")
    responses = story.infer(inputs=_story(1, fails=True))
    next(responses)
    with pytest.raises(tritonserver.TritonError, match="the story has no end") as failed:
        next(responses)
    assert failed.value.args[1].final
    last = list(story.infer(inputs=_story(1, fails=True), raise_on_error=False))[-1]
    assert "no end" in str(last.error)
    assert last.final


@pytest.mark.contract("API-08")
def test_what_is_wrong_with_a_request_is_raised_at_once(server: tritonserver.Server) -> None:
    copy = server.model("copy")
    with pytest.raises(tritonserver.NotFoundError, match="unknown model: 'nope'"):
        server.model("nope").infer()
    with pytest.raises(tritonserver.InvalidArgumentError, match="NUMBERS"):
        copy.infer(inputs={"NUMBERS": np.zeros((1, 3, 3), np.float32)})
    with pytest.raises(tritonserver.InvalidArgumentError, match="Request Parameter"):
        copy.infer(inputs={"SMALL": [1]}, parameters={"x": None})
    with pytest.raises(tritonserver.InvalidArgumentError, match="memory type"):
        copy.infer(inputs={"SMALL": [1]}, output_memory_type="nowhere")
    with pytest.raises(tritonserver.InvalidArgumentError, match="allocator"):
        copy.infer(output_memory_allocator=object())
    with pytest.raises(tritonserver.UnsupportedError, match="longer than 128"):
        copy.infer(correlation_id="x" * 129)
    with pytest.raises(tritonserver.InvalidArgumentError, match=r"queue\.SimpleQueue"):
        copy.infer(response_queue=asyncio.Queue())
    with pytest.raises(tritonserver.InvalidArgumentError, match=r"asyncio\.Queue"):
        copy.async_infer(response_queue=queue.SimpleQueue())


@pytest.mark.contract("API-04")
def test_outputs_on_a_device_are_refused_in_the_response(server: tritonserver.Server) -> None:
    responses = server.model("copy").infer(
        inputs={"SMALL": np.array([[1]], np.int8)}, output_memory_type="gpu"
    )
    with pytest.raises(tritonserver.InvalidArgumentError, match="not supported"):
        next(responses)


@pytest.mark.contract("API-12")
def test_flags_make_sequences(server: tritonserver.Server) -> None:
    flags = tritonserver.RequestFlag.SEQUENCE_START | tritonserver.RequestFlag.SEQUENCE_END
    (response,) = server.model("copy").infer(
        inputs={"SMALL": np.array([[1]], np.int8)}, flags=flags, correlation_id="a", timeout=10**6
    )
    assert response.final


@pytest.mark.contract("API-04")
@pytest.mark.parametrize(
    ("options", "told", "expected"),
    [
        ({"priority": 3}, "priority", 3),
        ({"timeout": 10**9}, "timeout", 10**9),
        ({"correlation_id": 7}, "correlation_id", 7),
        ({"correlation_id": "story"}, "correlation_id", "story"),
        ({"flags": tritonserver.RequestFlag.SEQUENCE_START}, "sequence_start", True),
        ({"flags": tritonserver.RequestFlag.SEQUENCE_END}, "sequence_end", True),
        ({"request_id": "mine"}, "id", "mine"),
        ({"parameters": {"scale": 2}}, "parameters", {"scale": 2}),
    ],
)
def test_a_model_sees_what_the_request_says(
    server: tritonserver.Server, options: dict[str, Any], told: str, expected: Any
) -> None:
    responses = server.model("story").infer(inputs=_story(1, show=told), **options)
    assert json.loads(next(responses).outputs["text_output"].to_string_array()[0]) == expected


@pytest.mark.contract("API-04")
def test_responses_also_go_to_a_queue(server: tritonserver.Server) -> None:
    seen: queue.SimpleQueue[Any] = queue.SimpleQueue()
    responses = server.model("repeat").infer(inputs=_repeat(7), response_queue=seen)
    first = seen.get(timeout=20)
    assert _array(first.outputs["OUT"]).tolist() == [7]
    assert seen.get(timeout=20).final
    assert [response.final for response in responses] == [False, True]
    assert seen.empty()


@pytest.mark.contract("API-04")
async def test_responses_also_go_to_a_queue_of_asyncio(server: tritonserver.Server) -> None:
    seen: asyncio.Queue[Any] = asyncio.Queue()
    responses = server.model("repeat").async_infer(inputs=_repeat(7), response_queue=seen)
    assert not (await seen.get()).final
    assert (await seen.get()).final
    assert [response.final async for response in responses] == [False, True]


@pytest.mark.contract("API-04")
async def test_queue_with_little_room_gets_all_responses_in_order(
    server: tritonserver.Server,
) -> None:
    seen: asyncio.Queue[Any] = asyncio.Queue(maxsize=1)
    values = list(range(20))
    model = server.model("repeat")
    responses = model.async_infer(inputs=_repeat(*values), response_queue=seen)
    async for _ in responses:
        pass  # all have come, and one has found room
    got = [await asyncio.wait_for(seen.get(), 20) for _ in values]
    assert [int(_array(response.outputs["OUT"])[0]) for response in got] == values


def test_a_request_with_a_queue_is_cancelled_too(
    server: tritonserver.Server, tmp_path: Path
) -> None:
    note, seen = tmp_path / "note", queue.SimpleQueue[Any]()
    responses = server.model("story").infer(inputs=_story(1, note), response_queue=seen)
    seen.get(timeout=20)
    responses.cancel()
    assert isinstance(seen.get(timeout=20).error, tritonserver.CancelledError)
    wait_until(note.exists)


def test_threads_ask_side_by_side(server: tritonserver.Server) -> None:
    def ask(number: int) -> int:
        inputs = {"SMALL": np.array([[number]], np.int8)}
        (response,) = server.model("copy").infer(inputs=inputs)
        return int(_array(response.outputs["SMALL"])[0, 0])

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(ask, range(64))) == list(range(64))


@pytest.mark.slow
def test_outputs_outlive_their_response(server: tritonserver.Server) -> None:
    inputs = {"TEXT": ["abc"], "sampling_parameters": []}
    (response,) = server.model("length").infer(inputs={"TEXT": inputs["TEXT"]})
    vector = _array(response.outputs["VECTOR"])
    del response
    gc.collect()
    assert vector.tolist() == [3, 1]
    vector[0] = 5  # and may be written to
    assert threading.active_count() > 0
