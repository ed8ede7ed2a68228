"""Errors, and requests that cannot be served."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from backends.tensorrt_llm.asking import ask, llm, opened, sampling, text
from backends.tensorrt_llm.conftest import WriteModel
from penstock.core.errors import (
    InferenceError,
    InternalError,
    InvalidRequestError,
    RequestCancelledError,
    UnavailableError,
)
from penstock.testing import RunningInstance

pytestmark = [pytest.mark.usefixtures("stand_in"), pytest.mark.usefixtures("release")]


@pytest.mark.contract("TL-07")
@pytest.mark.parametrize(
    ("prompt", "kind", "message"),
    [
        ("@refuse", InvalidRequestError, "the prompt is longer than max_seq_len"),
        ("@fail", InternalError, "a kernel failed"),
        ("@silent", InternalError, "the engine ended the request without a last output"),
    ],
)
async def test_errors_of_the_engine(
    instance: RunningInstance, prompt: str, kind: type[InferenceError], message: str
) -> None:
    with pytest.raises(kind) as failed:
        await ask(instance, prompt, **sampling(max_tokens=4))
    assert failed.value.message == f"Error generating request: {message}"
    assert text((await ask(instance, **sampling(max_tokens=1)))[0]) == " w0"


async def test_what_the_engine_cancels_is_cancelled(instance: RunningInstance) -> None:
    with pytest.raises(RequestCancelledError):
        await ask(instance, "@cancel")


async def test_the_engines_death_ends_all_requests(instance: RunningInstance) -> None:
    waiting = asyncio.create_task(ask(instance, "@endless"))
    with pytest.raises(UnavailableError, match="unhealthy TensorRT-LLM engine"):
        await ask(instance, "@die")
    with pytest.raises(UnavailableError):
        await waiting
    assert not await instance.backend.healthy()
    with pytest.raises(UnavailableError):
        await ask(instance)


@pytest.mark.contract("TL-07")
@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"lora_name": "a", "lora_path": "/"},
            "lora_id, lora_name, and lora_path must all be provided together",
        ),
        (
            {"lora_id": np.array([1], np.uint64), "lora_name": "a", "lora_path": "/nowhere"},
            "lora_path does not exist on the Triton server's filesystem: /nowhere",
        ),
        (
            {
                "lora_id": np.array([1], np.uint64),
                "lora_name": "a",
                "lora_path": "/",
                "lora_ckpt_source": "gguf",
            },
            "lora_ckpt_source must be one of ('hf', 'nemo'), got 'gguf'",
        ),
        ({"image_url": "file:///etc/passwd"}, "must hold http:, https: or data: URLs"),
        ({"image_url": "/etc/passwd"}, "must hold http:, https: or data: URLs"),
        (
            {"sampling_param_logits_post_processor_name": "x"},
            "Unknown logits post-processor 'x'. Processors must be declared under "
            "'logits_post_processors' in model.yaml. Available: none configured",
        ),
        ({"text_input": ["a", "b"]}, "must hold one prompt, not 2"),
        ({"text_input": ""}, "the prompt is empty"),
        ({"text_input": "x" * 10_000_000}, "the prompt has 10000000 characters; at most 4194304"),
        (sampling(max_tokens=0), "'sampling_param_max_tokens' must be at least 1, not 0"),
        (
            sampling(max_tokens=10**9),
            "'sampling_param_max_tokens' must be at most 16777216, not 1000000000",
        ),
        (sampling(best_of=10**6), "'sampling_param_best_of' must be at most 2048"),
        (sampling(top_p=1.5), "'sampling_param_top_p' must be at most 1"),
        (sampling(temperature=float("nan")), "must be a finite number"),
        ({"sampling_param_stop": [""]}, "must not hold an empty text"),
        (
            {"sampling_param_stop": [str(number) for number in range(1000)]},
            "input 'sampling_param_stop' must hold at most 256 strings, not 1000",
        ),
        (
            {"sampling_param_top_k": np.array([1, 2], np.int32)},
            "Expected a scalar tensor for tensor sampling_param_top_k",
        ),
    ],
)
async def test_what_cannot_be_served_is_refused_by_name(
    instance: RunningInstance, given: dict[str, Any], message: str
) -> None:
    before = len(llm(instance).requests)
    with pytest.raises(InvalidRequestError) as refused:
        await ask(instance, **{"prompt": "hello"} | {"text_input": "hello"} | given)
    assert message in refused.value.message
    assert refused.value.message.startswith("Error generating request: ")
    assert len(llm(instance).requests) == before


async def test_an_adapter_reaches_the_engine(instance: RunningInstance, tmp_path: Path) -> None:
    adapter: dict[str, Any] = {
        "lora_id": np.array([3], np.uint64),
        "lora_name": "a",
        "lora_path": str(tmp_path),
    }
    await ask(instance, **adapter, **sampling(max_tokens=1), lora_ckpt_source="nemo")
    request = llm(instance).lora_request
    assert (
        request.lora_int_id,
        request.lora_name,
        request.lora_path,
        request.lora_ckpt_source,
    ) == (
        3,
        "a",
        str(tmp_path),
        "nemo",
    )


async def test_a_model_without_adapters_or_images_says_so(version: WriteModel) -> None:
    async with opened(version()) as instance:
        adapter: dict[str, Any] = {
            "lora_id": np.array([1], np.uint64),
            "lora_name": "a",
            "lora_path": "/nowhere",
        }
        with pytest.raises(InvalidRequestError, match=r"LoRA feature is not enabled\.$"):
            await ask(instance, **adapter)
        with pytest.raises(InvalidRequestError, match="'image_url' is for models that take images"):
            await ask(instance, image_url="data:,x")
