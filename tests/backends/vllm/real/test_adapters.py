"""LoRA adapters in the real engine: broken ones, and those that come and go."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from backends.generation import PROMPT, plain, start, until, usage
from backends.vllm.real.conftest import add_adapter
from penstock.core.errors import InvalidRequestError
from penstock.testing import RunningInstance

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def text(instance: RunningInstance, prompt: str = PROMPT, **sampling: Any) -> str:
    pieces = [plain(r)["text_output"][0] async for r in start(instance, prompt, **sampling)]
    return "".join(pieces)


async def adapters(instance: RunningInstance) -> dict[str, tuple[bool, int]]:
    """Of each adapter, whether it is loaded, and the requests that use it."""
    listed = (await instance.backend.control("list-adapters", {}))["adapters"]
    return {one["name"]: (one["loaded"], one["requests"]) for one in listed}


async def _step(instance: RunningInstance, others: Sequence[asyncio.Future[str]]) -> None:
    """Until the engine has made a token, or has made all of them."""
    metrics, tokens = instance.backend.metrics, "penstock_llm_generation_tokens_total"
    made = metrics()[tokens]
    await until(lambda: metrics()[tokens] > made or all(one.done() for one in others), 0.001)


@pytest.mark.contract("VL-13")
@pytest.mark.parametrize("sampling", [{}, {"lora_name": "loud"}])
async def test_broken_adapters_harm_nobody_under_load(
    instance: RunningInstance, sampling: dict[str, Any]
) -> None:
    """Others run all the while, with a good adapter or without one, and answer as alone.

    Not both at once: vLLM for CPUs then answers those without one differently, broken ones or not.
    """
    alone = await text(instance, max_tokens=100, **sampling)
    others = [asyncio.ensure_future(text(instance, max_tokens=100, **sampling)) for _ in range(8)]
    refused = []
    for name in ["torn", "gone"] * 4:
        with pytest.raises(InvalidRequestError) as error:
            await text(instance, lora_name=name)
        refused.append(error.value.message)
        await _step(instance, others)
    assert refused[:2] * 4 == refused
    assert refused[0].startswith("LoRA torn cannot be loaded from ")
    assert refused[0].endswith(
        "torn': Error while deserializing header: incomplete metadata, file not fully covered"
    )
    gone = "Loading lora gone failed: No adapter found for gone"
    assert refused[1] == f"LoRA gone cannot be loaded from 'gone': {gone}"
    assert await asyncio.gather(*others) == [alone] * 8
    loaded = await adapters(instance)
    assert (loaded["torn"], loaded["gone"]) == ((False, 0), (False, 0))
    assert await instance.backend.healthy()


async def test_adapter_comes_and_goes_while_the_engine_runs(
    instance: RunningInstance, version: Path
) -> None:
    control = instance.backend.control
    shutil.copytree(version / "loud", version / "late")
    added = await control("add-adapter", {"name": "late", "path": "late"})
    assert added == {"adapter": "late", "path": str((version / "late").resolve())}
    assert (await adapters(instance))["late"] == (True, 0)
    loud = await text(instance, max_tokens=20, lora_name="loud")
    assert await text(instance, max_tokens=20, lora_name="late") == loud
    async with aclosing(start(instance, max_tokens=900, lora_name="late")) as responses:
        await anext(responses)
        removal = asyncio.ensure_future(control("remove-adapter", {"name": "late"}))
        await until(lambda: "late" not in instance.backend._engine.adapters.names, 0.01)
        with pytest.raises(InvalidRequestError, match="LoRA late is not supported"):
            await text(instance, lora_name="late")
        assert not removal.done()
    assert await removal == {"adapter": "late"}
    await until(lambda: usage(instance) == (0, 0, 0.0), 0.01)


async def test_another_adapter_of_the_same_name_is_not_taken_for_the_former(
    instance: RunningInstance, version: Path
) -> None:
    control = instance.backend.control
    add_adapter(version / "model", version / "first", seed=2)
    add_adapter(version / "model", version / "second", seed=3)
    texts = []
    for path in ("first", "second"):
        await control("add-adapter", {"name": "same", "path": path})
        texts.append(await text(instance, max_tokens=20, lora_name="same"))
        await control("remove-adapter", {"name": "same"})
    assert texts[0] != texts[1]


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"name": "../x", "path": "loud"}, "adapter name '../x' must be"),
        ({"name": "x", "path": "../../etc"}, "is not a folder below the model's version"),
        ({"name": "x", "path": "torn"}, "LoRA x cannot be loaded from"),
        ({"name": "x"}, "argument 'path' must be"),
        ({"name": "x", "path": "loud", "pth": 1}, "unknown argument 'pth'; did you mean 'path'"),
    ],
)
async def test_bad_adapter_is_refused_by_name(
    instance: RunningInstance, arguments: dict[str, Any], why: str
) -> None:
    with pytest.raises(InvalidRequestError, match=why):
        await instance.backend.control("add-adapter", arguments)
    assert "x" not in await adapters(instance)
    assert await text(instance, max_tokens=2)
