"""Neither other requests nor their cancellation change a request's text."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from pathlib import Path

import pytest

from backends.conftest import write_settings
from penstock.core.config import ModelConfig
from penstock.core.request import InferenceResponse
from penstock.testing import RunningInstance, running
from penstock_backends.openvino_genai import OpenVinoGenAiBackend

pytest.importorskip("openvino_genai", reason="OpenVINO GenAI is not installed")

STREAMS = 64
WORDS = "a file is read by the program and every line of it goes to another function".split()
PROMPTS = [" ".join(WORDS[i % 7 : 8 + i % 7] * (1 + i % 5)) + f" {i}" for i in range(STREAMS)]


@pytest.fixture
async def instance(own_gguf_version: Path) -> AsyncIterator[RunningInstance]:
    """A cache too small for all at once: sequences are preempted and computed again."""
    write_settings(
        own_gguf_version,
        num_kv_blocks=96,
        max_num_seqs=40,
        max_num_batched_tokens=128,
    )
    async with running(OpenVinoGenAiBackend, ModelConfig(name="m"), own_gguf_version) as instance:
        yield instance


def start(instance: RunningInstance, index: int) -> AsyncGenerator[InferenceResponse, None]:
    sampling = {"temperature": 0, "ignore_eos": True, "max_tokens": 40 + index % 9}
    return instance.infer(
        {
            "text_input": PROMPTS[index],
            "stream": True,
            "sampling_parameters": json.dumps(sampling),
        }
    )


async def read(instance: RunningInstance, index: int, responses: int | None = None) -> str:
    """The text of a stream, or of its first `responses` before it is cancelled."""
    text = ""
    async with aclosing(start(instance, index)) as stream:
        while responses is None or responses > 0:
            response = await anext(stream, None)
            if response is None:
                break
            text += response.outputs["text_output"].elements()[0].decode()
            responses = None if responses is None else responses - 1
    return text


async def test_cancelled_neighbours_change_nothing(instance: RunningInstance) -> None:
    alone = [await read(instance, index) for index in range(0, STREAMS, 4)]
    together = await asyncio.gather(
        *(read(instance, index, None if index % 2 == 0 else index % 23) for index in range(STREAMS))
    )
    assert together[::4] == alone
    metrics = instance.backend.metrics()
    assert metrics["penstock_llm_running_requests"] == 0
    assert metrics["penstock_llm_waiting_requests"] == 0
    assert metrics["penstock_llm_failed_requests_total"] == 0


async def test_the_cache_is_free_after_the_storm(instance: RunningInstance) -> None:
    await asyncio.gather(*(read(instance, index, index % 11) for index in range(STREAMS)))
    async with aclosing(start(instance, 0)) as stream:
        for _ in range(4):
            await anext(stream)
        usage = instance.backend.metrics()["penstock_llm_kv_cache_usage"]
        assert usage == pytest.approx(1 / 96, rel=1e-3)
