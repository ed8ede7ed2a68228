"""Requests to the backend over the stand-in, and their responses."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np

from penstock.core.config import ModelConfig
from penstock.core.request import InferenceResponse
from penstock.testing import RunningInstance, running
from penstock_backends.tensorrt_llm import TensorRtLlmBackend

_KINDS = {
    "max_tokens": np.int32,
    "best_of": np.int32,
    "top_k": np.int32,
    "temperature": np.float32,
    "top_p": np.float32,
    "seed": np.uint64,
}

_FLOATS = {"temperature", "runtime_top_p", "len_penalty", "repetition_penalty", "top_p"}


@asynccontextmanager
async def opened(folder: Path, config: ModelConfig | None = None) -> AsyncIterator[RunningInstance]:
    """An instance of the LLM-API model."""
    async with running(TensorRtLlmBackend, config or ModelConfig(name="m"), folder) as instance:
        yield instance


def sampling(**given: Any) -> dict[str, Any]:
    """Sampling fields as inputs of the declared datatypes."""
    return {
        f"sampling_param_{name}": np.array([value], _KINDS[name]) for name, value in given.items()
    }


def on(*names: str) -> dict[str, Any]:
    """Flags that are set."""
    return {name: np.array([True]) for name in names}


def inputs(**given: Any) -> dict[str, Any]:
    """Inputs of the five-model layout, of the declared datatypes; what is no number as it is."""
    return {
        name: np.array([value], np.float32 if name in _FLOATS else np.int32)
        if isinstance(value, int | float) and not isinstance(value, bool)
        else value
        for name, value in given.items()
    }


async def ask(
    instance: RunningInstance, prompt: str = "hello", *, id: Any = "", **inputs: Any
) -> list[InferenceResponse]:
    """All responses to a prompt."""
    return [one async for one in instance.infer({"text_input": prompt, **inputs}, id=id)]


def text(response: InferenceResponse) -> str:
    """The only text of a response."""
    (only,) = response.outputs["text_output"].elements()
    return only.decode()


def llm(instance: RunningInstance) -> Any:
    """The stand-in's engine."""
    backend: Any = instance.backend
    return backend._engine._llm
