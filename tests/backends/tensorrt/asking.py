"""Models of plans for tests, and what they are asked."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np

from backends.tensor_models import graphs
from backends.tensorrt.plans import tensor, write
from penstock.core.config import ModelConfig, config_from_json
from penstock.core.request import InferenceResponse
from penstock_backends.tensorrt import TensorRtBackend

Open = Callable[..., Awaitable[TensorRtBackend]]


def plan_config(**fields: Any) -> ModelConfig:
    """A model of `double` for 8 rows."""
    given: dict[str, Any] = {
        "name": "m",
        "backend": "tensorrt",
        "platform": "tensorrt_plan",
        "max_batch_size": 8,
        "input": [{"name": "x", "data_type": "TYPE_FP32", "dims": [4]}],
        "output": [{"name": "y", "data_type": "TYPE_FP32", "dims": [4]}],
    }
    return config_from_json(given | fields)


def rows_of(count: int, start: float = 0, width: int = 4) -> Any:
    return np.arange(count * width, dtype=np.float32).reshape(count, width) + start


async def asked(backend: Any, *arrays: Any, name: str = "x") -> list[Any]:
    outcomes = await backend.execute([graphs.request(**{name: array}) for array in arrays])
    return [(await response_of(one)).outputs["y"].numpy() for one in outcomes]


async def response_of(outcome: Any) -> InferenceResponse:
    """The response, also of an outcome that comes later; raises an error."""
    if not isinstance(outcome, InferenceResponse | Exception):
        (outcome,) = [response async for response in outcome]
    if isinstance(outcome, Exception):
        raise outcome
    response: InferenceResponse = outcome
    return response


NARROW = {"x": [[1, 1], [4, 8], [8, 16]]}


def variable_config(**fields: Any) -> ModelConfig:
    x, y = ({"name": name, "data_type": "TYPE_FP32", "dims": [-1]} for name in "xy")
    return plan_config(input=[x], output=[y], **fields)


async def completed_config(version: Path, **fields: Any) -> ModelConfig:
    bare = config_from_json({"name": "m", "backend": "tensorrt", **fields})
    return await TensorRtBackend.complete_config(bare, version, {})


SIZES = {"x": [[1, 2], [2, 2], [4, 2]], "size": [[1, 1], [2, 3], [4, 8]]}


def write_stretch(path: Path) -> None:
    """`y` are the rows of `x`, stretched to as many columns as `size` says."""
    write(
        path,
        "stretch",
        [
            tensor("x", -1, 2),
            tensor("size", 2, dtype="INT32", shape_tensor=True),
            tensor("y", -1, -1, input=False),
            tensor("shape", 2, dtype="INT64", shape_tensor=True, input=False),
        ],
        SIZES,
    )


def launches(gpu: Any) -> int:
    calls: list[str] = gpu.gpu.calls
    return calls.count("cudaGraphLaunch")
