"""Calls of the client to a real server, over gRPC and HTTP."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from harness.client_models import LENGTH
from harness.serving import Served, wait_until
from penstock_client.client import (
    CallPolicy,
    Client,
    ClientError,
    DataType,
    DeadlineExceededError,
    InvalidArgumentError,
    NotFoundError,
    Tensor,
    UnavailableError,
)


async def test_arrays_come_back_as_they_went(client: Client) -> None:
    numbers = np.arange(8, dtype=np.float32).reshape(1, 2, 4)
    result = await client.infer("copy", {"NUMBERS": numbers}, id="one", outputs=["NUMBERS"])
    assert np.array_equal(result["NUMBERS"], numbers)
    assert (result.model, result.version, result.id) == ("copy", "1", "one")


async def test_lists_and_strings_take_the_models_datatypes(client: Client) -> None:
    inputs = {"NUMBERS": [1, 2, 3, 4], "TEXT": ["né", b"\xff"], "HALF": [1.5], "SMALL": 7}
    result = await client.infer("copy", inputs)
    assert result["NUMBERS"].shape == (1, 2, 2)
    assert result["TEXT"].tolist() == [["né".encode(), b"\xff"]]
    assert result.texts("TEXT") == ["né", "\ufffd"]
    assert result.tensor("HALF").datatype == "BF16"
    assert result["SMALL"].tolist() == [[7]]


async def test_a_tensor_says_its_own_datatype(client: Client) -> None:
    half = Tensor.from_numpy(np.array([[0x3F80]], np.uint16), DataType.BF16)
    result = await client.infer("copy", {"HALF": half}, outputs=["HALF"])
    assert result["HALF"].tolist() == [[0x3F80]]


@pytest.mark.contract("N-07")
@pytest.mark.parametrize("address", ["grpc", "http"])
async def test_arrays_of_ml_dtypes_go_and_come(served: Served, address: str) -> None:
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    half = np.array([[1.5], [-2]], bfloat16)
    target = served.grpc if address == "grpc" else f"http://{served.http}"
    async with Client(target) as client:
        result = await client.infer("copy", {"HALF": half[:1]}, outputs=["HALF"])
    assert result.tensor("HALF").datatype == "BF16"
    assert result.bfloat16("HALF").dtype == bfloat16
    assert result.bfloat16("HALF").tolist() == [[1.5]]


async def test_a_missing_output_names_those_there_are(client: Client) -> None:
    result = await client.infer("copy", {"SMALL": 1}, outputs=["SMALL"])
    assert "SMALL" in result
    with pytest.raises(KeyError, match="there are: SMALL"):
        result["LARGE"]


async def test_errors_have_the_servers_text_and_kind(client: Client) -> None:
    with pytest.raises(ClientError, match="unknown model: 'nope'") as failed:
        await client.infer("nope", {"X": np.zeros(1, np.float32)})
    assert isinstance(failed.value, NotFoundError | InvalidArgumentError)
    with pytest.raises(InvalidArgumentError, match="NUMBERS"):
        await client.infer("copy", {"NUMBERS": np.zeros((1, 3, 3), np.float32)})


async def test_a_deadline_ends_a_stream_at_the_server(client: Client, tmp_path: Path) -> None:
    pieces, note = await _begun(client, tmp_path)
    with pytest.raises(DeadlineExceededError):
        await anext(pieces)
    await asyncio.to_thread(wait_until, note.exists)


async def _begun(
    client: Client, folder: Path, seconds: float = 1.5
) -> tuple[AsyncGenerator[str, None], Path]:
    """A stream whose first piece came before its deadline, and its note.

    The deadline is later where the machine is too busy for that.
    """
    note = folder / f"{seconds}"
    pieces = client.generate("story", "a", max_tokens=1, note=str(note), timeout=seconds)
    try:
        assert await anext(pieces) == "a0 "
    except DeadlineExceededError:
        return await _begun(client, folder, 4 * seconds)
    return pieces, note


async def test_generated_text_comes_in_pieces(client: Client) -> None:
    pieces = [piece async for piece in client.generate("story", "w", max_tokens=3)]
    assert pieces == ["w0 ", "w1 ", "w2 "]


async def test_several_texts_are_not_mixed_into_one(client: Client) -> None:
    with pytest.raises(InvalidArgumentError, match=r"'story' answers with 2 texts .* `stream`"):
        await anext(client.generate("story", "w", n=2))


async def test_leaving_the_loop_cancels_at_the_server(client: Client, tmp_path: Path) -> None:
    note = tmp_path / "note"
    stream = client.generate("story", "a", max_tokens=1, note=str(note))
    async with aclosing(stream) as pieces:
        async for piece in pieces:
            assert piece == "a0 "
            break
    await asyncio.to_thread(wait_until, note.exists)


async def test_cancelling_the_task_cancels_at_the_server(client: Client, tmp_path: Path) -> None:
    note, begun = tmp_path / "note", asyncio.Event()

    async def read() -> None:
        async for _ in client.generate("story", "a", max_tokens=1, note=str(note)):
            begun.set()

    task = asyncio.ensure_future(read())
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.to_thread(wait_until, note.exists)


async def test_a_cancelled_call_is_cancelled_at_the_server(client: Client, tmp_path: Path) -> None:
    note = tmp_path / "note"
    call = asyncio.ensure_future(client.infer("waits", {"NOTE": str(note)}))
    await asyncio.to_thread(wait_until, note.with_suffix(".begun").exists)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await asyncio.to_thread(wait_until, note.exists)


async def test_a_cancelled_stream_leaves_its_neighbours(client: Client, tmp_path: Path) -> None:
    left = client.generate("story", "a", max_tokens=1, note=str(tmp_path / "note"))
    stays = client.generate("story", "b", max_tokens=2)
    assert await anext(left) == "a0 "
    assert await anext(stays) == "b0 "
    await left.aclose()
    assert [piece async for piece in stays] == ["b1 "]


async def test_an_error_in_a_stream_is_raised_behind_its_responses(client: Client) -> None:
    pieces = client.generate("story", "a", max_tokens=2, fails=True)
    assert [await anext(pieces), await anext(pieces)] == ["a0 ", "a1 "]
    with pytest.raises(ClientError, match="the story has no end"):
        await anext(pieces)


async def test_streams_of_decoupled_models(client: Client) -> None:
    inputs = {"IN": [4, 2, 0], "DELAY": [0, 0, 0], "WAIT": 0}
    seen = [int(each["OUT"][0]) async for each in client.stream("repeat", inputs)]
    assert seen == [4, 2, 0]


async def test_a_model_without_text_does_not_generate(client: Client) -> None:
    with pytest.raises(InvalidArgumentError, match="takes no prompt"):
        await anext(client.generate("repeat", "a"))


async def test_a_model_without_vectors_does_not_embed(client: Client) -> None:
    with pytest.raises(InvalidArgumentError, match="does not embed"):
        await client.embed("story", ["a"])


async def test_texts_are_embedded_in_order(client: Client) -> None:
    assert (await client.embed("length", ["a", "bcd"])).tolist() == [[1, 1], [3, 1]]
    assert (await client.embed("length", [])).shape == (0, 0)


async def test_a_text_that_fails_fails_all_with_its_own_error(client: Client, url: str) -> None:
    await client.embed("length", ["a"])
    async with Client(url, timeout=20.0) as other:
        await other.unload("length")
        try:
            with pytest.raises(ClientError, match="'length'"):
                await client.embed("length", ["a"] * 300)
        finally:
            await other.load("length")


async def test_a_text_that_fails_leaves_the_others(client: Client) -> None:
    options: dict[str, Any] = {"id": "r", "priority": 2, "parameters": {"scale": 2}}
    outcomes = client.embed_each("length", ["a", "bad", "abc"], **options)
    first, failed, last = [cast("Any", outcome) async for outcome in outcomes]
    assert np.array_equal([first, last], [[2, 1], [6, 1]])
    assert "a bad text: r-1, 2" in failed.message
    with pytest.raises(ClientError, match="a bad text"):
        await client.embed("length", ["a", "bad", "bad"])


async def test_a_policy_tries_texts_again(client: Client, url: str) -> None:
    again = CallPolicy(attempts=2, backoff=0.0)
    with pytest.raises(UnavailableError, match="try again"):
        await client.embed("length", ["busy"], id=f"{url}-once")
    vectors = await client.embed("length", ["busy", "a"], id=f"{url}-twice", policy=again)
    assert vectors.tolist() == [[4, 1], [1, 1]]


async def test_requests_have_what_the_protocol_knows(client: Client, url: str) -> None:
    """Parameters are those of the request, though the model takes its options by a tensor."""
    again = CallPolicy(attempts=2)
    options: dict[str, Any] = {"id": "r", "parameters": {"tenant": "a"}, "policy": again}
    pieces = [piece async for piece in client.generate("story", "a", tell=True, **options)]
    *told, parameters = json.loads(pieces[0])
    assert (told, parameters["tenant"]) == (["r", 0, 0, False], "a")
    inputs: dict[str, Any] = {"text_input": "a", "sampling_parameters": '{"tell": true}'}
    stream = client.stream("story", inputs, sequence=7, start=True, priority=3)
    if url.startswith("http"):
        with pytest.raises(InvalidArgumentError, match="know no priority, sequence_end, sequence"):
            await anext(stream)
        return
    (answer,) = [each async for each in stream]
    assert json.loads(answer.text("text_output")) == ["", 3, 7, True, {}]


async def test_a_stream_is_not_hedged(client: Client, url: str) -> None:
    hedged = CallPolicy(hedge_after=0.0)
    with pytest.raises(InvalidArgumentError, match="a stream is not hedged"):
        await anext(client.generate("story", "a", max_tokens=1, policy=hedged))
    async with Client(url, policy=hedged, timeout=20.0) as other:
        assert [piece async for piece in other.generate("story", "a", max_tokens=1)] == ["a0 "]


async def test_models_are_unloaded_and_loaded_with_files(client: Client) -> None:
    await client.unload("length", dependents=True)
    assert not await client.ready("length")
    source = LENGTH.replace("1.0", "2.0").encode()
    await client.load("length", config="{}", files={"1/model.py": source})
    assert (await client.embed("length", ["a"])).tolist() == [[1, 2]]
    await client.load("length")
    assert (await client.embed("length", ["a"])).tolist() == [[1, 1]]


async def test_views_of_server_and_models(client: Client) -> None:
    assert await client.live()
    assert await client.ready()
    assert await client.ready("copy", "1")
    assert not await client.ready("nope")
    assert "model_repository" in (await client.server_metadata()).extensions
    metadata = await client.model_metadata("story")
    assert ("text_input", "BYTES", (1,)) in [(t.name, t.datatype, t.shape) for t in metadata.inputs]
    config = await client.model_config("copy")
    assert config["max_batch_size"] == 8
    assert config["input"][1]["dims"] in ([2, -1], ["2", "-1"])
    assert config["input"][1]["data_type"] == "TYPE_FP32"
    names = {entry.name: entry.state for entry in await client.models()}
    assert names["copy"] == "READY"


@pytest.mark.parametrize("ask", ["model_metadata", "model_config", "statistics", "load"])
async def test_what_is_asked_of_a_model_that_is_not_there_is_refused(
    client: Client, ask: str
) -> None:
    with pytest.raises(ClientError, match="'nope'"):
        await getattr(client, ask)("nope")


async def test_statistics_count_what_was_asked(client: Client) -> None:
    (before,) = await client.statistics("copy")
    await client.infer("copy", {"SMALL": 1})
    (after,) = await client.statistics("copy", "1")
    assert after.succeeded == before.succeeded + 1
    assert after.request_ns > before.request_ns
    assert {each.name for each in await client.statistics()} >= {"copy", "story"}


async def test_sequences_and_parameters_reach_the_server(client: Client) -> None:
    result = await client.infer(
        "copy", {"SMALL": 1}, sequence=5, start=True, end=True, priority=0, parameters={"a": 1}
    )
    assert result["SMALL"].tolist() == [[1]]


async def test_models_are_waited_for(client: Client) -> None:
    await client.wait_ready("copy", "story", timeout=10.0)
    with pytest.raises(DeadlineExceededError, match="model 'nope' was not ready"):
        await client.wait_ready("nope", timeout=0.2)


async def test_tensors_in_shared_memory(client: Client) -> None:
    numbers = np.arange(64, dtype=np.float32).reshape(1, 2, 32)
    async with client.shared_memory(4096) as memory:
        source, target = memory.put(numbers), memory.room("FP32", (1, 2, 32))
        text, room = memory.put(np.array([[b"abc"]], object)), memory.reserve(64)
        result = await client.infer(
            "copy",
            {"NUMBERS": source, "TEXT": text},
            outputs={"NUMBERS": target, "TEXT": room},
        )
        assert np.array_equal(result["NUMBERS"], numbers)
        assert np.array_equal(target.numpy(), numbers)
        assert result["TEXT"].tolist() == [[b"abc"]]
        target.numpy()[:] = 0
        assert not result["NUMBERS"].any(), "it was copied"
        del result
    with pytest.raises(ClientError):
        await client.infer("copy", {"NUMBERS": source})


async def test_memory_that_is_full_says_so(client: Client) -> None:
    async with client.shared_memory(64) as memory:
        memory.reserve(32)
        with pytest.raises(ValueError, match="do not fit"):
            memory.reserve(32)
        memory.clear()
        assert memory.room("FP32", (4,)).numpy().shape == (4,)
        with pytest.raises(ValueError, match="use `reserve`"):
            memory.room("BYTES", (4,))


async def test_calls_share_several_addresses(served: Served) -> None:
    addresses = [served.grpc, f"http://{served.http}", "localhost:1"]
    async with Client(*addresses, timeout=10.0) as client:
        results = await asyncio.gather(*(client.infer("copy", {"SMALL": n}) for n in range(16)))
    assert [int(result["SMALL"][0, 0]) for result in results] == list(range(16))


async def test_what_http_streams_cannot_send_is_refused(served: Served) -> None:
    async with Client(f"http://{served.http}") as client:
        half = Tensor.from_numpy(np.array([1], np.uint16), DataType.BF16)
        with pytest.raises(InvalidArgumentError, match="BF16"):
            await anext(client.stream("copy", {"HALF": half}))
        async with client.shared_memory(64) as memory:
            small = memory.put(np.zeros(1, np.int8))
            with pytest.raises(InvalidArgumentError, match="shared memory"):
                await anext(client.stream("copy", {"SMALL": small}))
