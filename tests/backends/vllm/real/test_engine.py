"""The backend with the real engine; the last test kills it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from backends.exchanging import application, begin, whole
from backends.generation import PROMPT, plain, start, until, usage
from penstock.core.config import ModelConfig
from penstock.core.errors import InvalidRequestError, ModelLoadError, UnavailableError
from penstock.testing import RunningInstance, running
from penstock_backends.vllm import VllmBackend
from penstock_backends.vllm.children import kill_leftovers
from penstock_backends.vllm.failures import UNHEALTHY

pytestmark = pytest.mark.asyncio(loop_scope="session")

PAUSE = 0.01
"""Seconds between looks at an engine in another process."""


async def ask(instance: RunningInstance, prompt: str = PROMPT, **given: Any) -> list[Any]:
    responses = [response async for response in start(instance, prompt, **given)]
    assert [response.final for response in responses] == [False] * (len(responses) - 1) + [True]
    return [plain(response) for response in responses]


async def text(instance: RunningInstance, prompt: str = PROMPT, **given: Any) -> str:
    return "".join(reply["text_output"][0] for reply in await ask(instance, prompt, **given))


async def test_a_stream_is_the_whole_text_in_pieces(instance: RunningInstance) -> None:
    whole = await ask(instance, inputs={"stream": False}, max_tokens=20)
    pieces = await ask(instance, max_tokens=20)
    assert len(pieces) > 10
    assert [reply["text_output"] for reply in whole] == [
        [PROMPT + "".join(piece["text_output"][0] for piece in pieces)]
    ]


async def test_log_probabilities_are_summed_without_being_asked_for_one_by_one(
    instance: RunningInstance,
) -> None:
    wanted = {"return_cumulative_logprob": True}
    replies = await ask(instance, inputs=wanted, max_tokens=4)
    assert replies[-1]["cumulative_logprob"][0] < 0


async def test_everything_that_can_be_asked_for(instance: RunningInstance) -> None:
    names = "finish_reason cumulative_logprob logprobs num_input_tokens num_output_tokens".split()
    wanted = {f"return_{name}": True for name in names}
    replies = await ask(instance, inputs=wanted, max_tokens=12, logprobs=1)
    assert set(replies[0]) == {"text_output", *names}
    assert [reply["finish_reason"] for reply in replies][-2:] == [["None"], ["length"]]
    assert sum(reply["num_output_tokens"][0] for reply in replies) == 12
    assert {tuple(reply["num_input_tokens"]) for reply in replies} == {
        tuple(replies[0]["num_input_tokens"])
    }
    places = [place for reply in replies for place in json.loads(reply["logprobs"][0])]
    total = sum(token["logprob"] for place in places for token in place.values())
    assert len(places) == 12
    assert replies[-1]["cumulative_logprob"] == [pytest.approx(total, rel=1e-3)]


async def test_a_stop_string_cuts_the_text(instance: RunningInstance) -> None:
    uncut = await text(instance, max_tokens=30)
    stop = uncut[len(uncut) // 2 :][:4]
    assert await text(instance, max_tokens=30, stop=stop) == uncut[: uncut.index(stop)]


async def test_candidates_differ(instance: RunningInstance) -> None:
    sampling: dict[str, Any] = {"n": 3, "seed": 7, "temperature": 1.5, "max_tokens": 30}
    stream = await ask(instance, **sampling)
    whole = await ask(
        instance, inputs={"stream": False, "exclude_input_in_output": True}, **sampling
    )
    texts = ["".join(pieces) for pieces in zip(*(r["text_output"] for r in stream), strict=True)]
    assert [reply["text_output"] for reply in whole] == [texts]
    assert len(set(texts)) == 3


async def test_structure_is_enforced(instance: RunningInstance) -> None:
    sampling: dict[str, Any] = {"ignore_eos": False, "structured_outputs": {"regex": "[0-9]{5}"}}
    assert (await text(instance, **sampling)).isdigit()


@pytest.mark.parametrize(
    ("prompt", "sampling", "why"),
    [
        (PROMPT, {"logprobs": 5000}, "logprobs"),
        (PROMPT, {"structured_outputs": {"regex": "[0-"}}, "regex"),
        (PROMPT, {"logit_bias": {"999999": 1}}, "logit_bias"),
        (PROMPT, {"allowed_token_ids": [999999]}, "allowed_token_ids"),
        (PROMPT, {"lora_name": "soft"}, r"LoRA soft is not supported, .* \['loud', "),
        ("word " * 3000, {}, "maximum context length is 1024"),
        ("", {}, "the prompt is empty"),
    ],
)
async def test_a_rejected_request_leaves_the_engine_alive(
    instance: RunningInstance, prompt: str, sampling: dict[str, Any], why: str
) -> None:
    with pytest.raises(InvalidRequestError, match=why):
        await ask(instance, prompt, **sampling)
    assert await instance.backend.healthy()
    assert await text(instance, max_tokens=2)


@pytest.mark.contract("VL-13")
@pytest.mark.parametrize(
    ("inputs", "outputs", "task"),
    [({"text_pair": ["b"]}, (), "score"), ({}, ("EMBEDDING",), "embed")],
)
async def test_what_only_pooling_models_have_is_refused(
    instance: RunningInstance, inputs: Any, outputs: tuple[str, ...], task: str
) -> None:
    asked = instance.infer({"text_input": "a", **inputs}, requested_outputs=outputs)
    with pytest.raises(InvalidRequestError, match=f"does not support '{task}' request"):
        [response async for response in asked]


async def test_an_adapter_changes_the_text(instance: RunningInstance) -> None:
    without = await text(instance, max_tokens=20)
    loud = await text(instance, max_tokens=20, lora_name="loud")
    assert await text(instance, max_tokens=20) == without != loud


@pytest.mark.contract("VL-14")
async def test_leaving_while_generating_frees_the_cache(instance: RunningInstance) -> None:
    before = instance.backend.metrics()["penstock_llm_cancelled_requests_total"]
    async with aclosing(start(instance, max_tokens=900)) as responses:
        await anext(responses)
        await until(lambda: usage(instance)[0] == 1 and usage(instance)[2] > 0, PAUSE)
    await until(lambda: usage(instance) == (0, 0, 0.0), PAUSE)
    assert instance.backend.metrics()["penstock_llm_cancelled_requests_total"] == before + 1


@pytest.mark.contract("VL-20", "ME-32")
async def test_times_and_lengths_are_reported_under_both_names(instance: RunningInstance) -> None:
    def counts() -> dict[str, list[int]]:
        histograms = instance.backend.histograms().items()
        return {n: h.state()[1] for n, h in histograms if "tenant=" not in n}

    before = counts()
    assert len(before["vllm:request_prompt_tokens"]) == 11  # 1, 2, 5 and so on to 1000, and inf
    await ask(instance, max_tokens=4)
    await until(lambda: counts()["vllm:request_params_n"] != before["vllm:request_params_n"], PAUSE)
    assert [name for name, count in counts().items() if count == before[name]] == []
    assert instance.backend.metrics()["vllm:generation_tokens_total"] >= 4


async def test_leaving_while_waiting_takes_no_turn(instance: RunningInstance) -> None:
    """All 16 places are taken when the 17th request comes and goes."""
    streams = [start(instance, max_tokens=600) for _ in range(16)]
    await asyncio.gather(*map(anext, streams))
    waiting = asyncio.ensure_future(anext(start(instance, max_tokens=600)))
    await until(lambda: usage(instance)[:2] == (16, 1), PAUSE)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await until(lambda: usage(instance)[:2] == (16, 0), PAUSE)
    for stream in streams:
        await stream.aclose()
    await until(lambda: usage(instance) == (0, 0, 0.0), PAUSE)


async def read(instance: RunningInstance, index: int, responses: int | None = None) -> str:
    """The text of a stream, or of its first `responses` before it is cancelled."""
    pieces: list[str] = []
    async with aclosing(start(instance, f"{PROMPT} {index}", max_tokens=30 + index % 5)) as stream:
        async for response in stream:
            pieces.append(plain(response)["text_output"][0])
            if len(pieces) == responses:
                break
    return "".join(pieces)


async def test_cancelled_neighbours_change_nothing(instance: RunningInstance) -> None:
    alone = [await read(instance, index) for index in range(0, 24, 2)]
    together = await asyncio.gather(
        *(read(instance, index, index % 11 if index % 2 else None) for index in range(24))
    )
    assert together[::2] == alone
    await until(lambda: usage(instance) == (0, 0, 0.0), PAUSE)


async def test_a_slow_reader_gets_merged_responses(instance: RunningInstance) -> None:
    whole = await text(instance, max_tokens=300)
    async with aclosing(start(instance, max_tokens=300)) as responses:
        pieces = [plain(await anext(responses))["text_output"][0]]
        await until(lambda: usage(instance)[0] == 0, PAUSE)
        pieces += [plain(response)["text_output"][0] async for response in responses]
    assert "".join(pieces) == whole
    assert len(pieces) < 20


LONG: Any = {"model": "m", "prompt": PROMPT, "max_tokens": 900, "ignore_eos": True}


@pytest.mark.contract("VL-01")
async def test_an_unknown_argument_fails_the_load(version: Path, tmp_path: Path) -> None:
    (tmp_path / "model.json").write_text('{"model": "m", "max_seq_num": 1}')
    with pytest.raises(ModelLoadError, match=r"'max_seq_num' in .* did you mean 'max_num_seqs'"):
        async with running(VllmBackend, ModelConfig(name="m"), tmp_path):
            pass


async def test_a_quantization_as_type_fails_the_load_with_advice(
    version: Path, tmp_path: Path
) -> None:
    arguments = {"model": str(version / "model"), "dtype": "fp8"}
    (tmp_path / "model.json").write_text(json.dumps(arguments))
    with pytest.raises(ModelLoadError, match=r'(?s)fp8.*; .*write "quantization": "fp8"') as failed:
        async with running(VllmBackend, ModelConfig(name="m"), tmp_path):
            pass
    assert "vLLM cannot start" in failed.value.message


async def test_a_dead_engine_fails_its_requests_and_its_health(instance: RunningInstance) -> None:
    """Last, since the engine does not come back."""
    backend: Any = instance.backend
    children = backend._engine._children
    core = min(process.pid for process in children)
    async with application(backend) as app, aclosing(start(instance, max_tokens=900)) as responses:
        await anext(responses)
        asked = [begin(app, "/v1/completions", {**LONG, "stream": each}) for each in (False, True)]
        await until(lambda: usage(instance)[0] == 3, PAUSE)
        os.kill(core, signal.SIGKILL)
        with pytest.raises(UnavailableError, match=UNHEALTHY):
            [response async for response in responses]
        (status, body), (_, events) = [await whole(answer) for answer in asked]
    error = json.loads(body)["error"]
    assert (status, error["code"]) == (503, 503)
    assert error["message"].startswith(UNHEALTHY)
    last = events.rstrip().rpartition("\n\n")[2]
    assert json.loads(last.removeprefix("data: ")) == {"error": error}
    assert not await backend.healthy()
    with pytest.raises(UnavailableError, match=UNHEALTHY):
        await text(instance)
    await backend.finalize()
    assert kill_leftovers(children, grace=60) == 0  # as long as a busy machine needs
