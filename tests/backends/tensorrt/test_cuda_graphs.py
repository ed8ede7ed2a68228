"""CUDA graphs of plans: what is captured, and what is replayed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from backends.tensorrt.asking import (
    NARROW,
    Open,
    asked,
    completed_config,
    launches,
    plan_config,
    rows_of,
    variable_config,
    write_stretch,
)
from backends.tensorrt.plans import tensor, write, write_double
from penstock.core.errors import (
    ConfigError,
)
from penstock_backends.tensorrt import TensorRtBackend


def _graphs(*specs: Mapping[str, Any]) -> dict[str, Any]:
    return {"optimization": {"cuda": {"graphs": True, "graph_spec": list(specs)}}}


@pytest.mark.contract("C-23")
async def test_graphs_of_default_batch_sizes_are_launched(
    gpu: Any, open_backend: Open, version: Path
) -> None:
    write_double(version / "model.plan")
    backend = await open_backend(plan_config(optimization={"cuda": {"graphs": True}}))
    for rows in range(1, 9):
        before = launches(gpu)
        (answer,) = await asked(backend, rows_of(rows))
        assert answer.tolist() == (2 * rows_of(rows)).tolist()
        assert launches(gpu) - before == (rows in (1, 2, 3, 4, 6, 8))


@pytest.mark.contract("C-23")
async def test_a_graph_runs_smaller_batches_down_to_its_bound(
    gpu: Any, open_backend: Open, version: Path
) -> None:
    write_double(version / "model.plan", NARROW)
    lower = {"batch_size": 2, "input": {"x": {"dim": ["5"]}}}
    spec = {"batch_size": 4, "input": {"x": {"dim": ["10"]}}, "graph_lower_bound": lower}
    backend = await open_backend(variable_config(**_graphs(spec)))
    for shape, launched in {
        (4, 10): 1,
        (3, 7): 1,
        (2, 5): 1,
        (1, 7): 0,
        (3, 4): 0,
        (5, 7): 0,
    }.items():
        before = launches(gpu)
        (answer,) = await asked(backend, rows_of(shape[0], 1, shape[1]))
        assert answer.tolist() == (2 * rows_of(shape[0], 1, shape[1])).tolist()
        assert launches(gpu) - before == launched, shape


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"batch_size": 9}, "graph spec expects 'batch_size' to be >= 1 and <= 8"),
        (
            {"batch_size": 1, "graph_lower_bound": {"batch_size": 2}},
            "graph lower bound spec expects 'batch_size' to be <= graph spec 'batch_size'",
        ),
        (
            {
                "batch_size": 1,
                "input": {"x": {"dim": ["4"]}},
                "graph_lower_bound": {"batch_size": 1},
            },
            "graph lower bound spec expects shape for input 'x'",
        ),
        (
            {
                "batch_size": 1,
                "input": {"x": {"dim": ["4"]}},
                "graph_lower_bound": {"batch_size": 1, "input": {"x": {"dim": ["4", "1"]}}},
            },
            "graph lower bound spec expects to have '1' dimensions, got 2",
        ),
        (
            {"batch_size": 1, "input": {"x": {"dim": ["-1"]}}},
            "graph spec expects input 'x' to have dimension >= 0",
        ),
        (
            {
                "batch_size": 1,
                "input": {"x": {"dim": ["4"]}},
                "graph_lower_bound": {"batch_size": 1, "input": {"x": {"dim": ["5"]}}},
            },
            "graph lower bound spec expects input 'x' to have dimension <= 4",
        ),
    ],
)
@pytest.mark.contract("C-23")
def test_wrong_graphs_are_refused_in_triton_s_words(spec: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError) as refused:
        TensorRtBackend.check_config(plan_config(**_graphs(spec)))
    assert refused.value.message == why
    with pytest.raises(ConfigError, match="expects 'batch_size' to be 0 if 'max_batch_size' is 0"):
        TensorRtBackend.check_config(plan_config(max_batch_size=0, **_graphs({"batch_size": 1})))


@pytest.mark.contract("C-23")
async def test_graphs_that_cannot_be_captured_are_left_out(
    gpu: Any, open_backend: Open, version: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_double(version / "model.plan", NARROW)
    specs = [
        {"batch_size": 1, "input": {"z": {"dim": ["4"]}}},
        {"batch_size": 1, "input": {"x": {"dim": ["17"]}}},
        {"batch_size": 1, "input": {"x": {"dim": ["4"]}}},
        {"batch_size": 1, "input": {"x": {"dim": ["4"]}}},
    ]
    backend = await open_backend(variable_config(**_graphs(*specs)))
    told = [message for message in caplog.messages if "CUDA graph" in message]
    assert len(told) == 3
    assert "between 1 and 16 but received 17" in told[1]
    assert "there is one already" in told[2]
    (answer,) = await asked(backend, rows_of(1))
    assert answer.tolist() == (2 * rows_of(1)).tolist()
    assert launches(gpu) == 1


@pytest.mark.contract("C-23")
async def test_graphs_are_captured_of_inputs_that_are_zeros(
    gpu: Any, open_backend: Open, version: Path
) -> None:
    """Numbers of a table, say, that were anything would be read far beyond it."""
    tensors = [tensor("x", -1, 4), tensor("y", -1, 4, input=False)]
    write(version / "model.plan", "lookup", tensors, {"x": [[1, 4], [4, 4], [8, 4]]})
    backend = await open_backend(plan_config(optimization={"cuda": {"graphs": True}}))
    (answer,) = await asked(backend, np.ones((1, 4), np.float32))
    assert answer.tolist() == [[0.5] * 4]
    assert launches(gpu) == 1


@pytest.mark.contract("C-23")
async def test_shape_tensors_have_no_graphs(
    gpu: Any, open_backend: Open, version: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_stretch(version / "model.plan")
    config = await completed_config(version, optimization={"cuda": {"graphs": True}})
    await open_backend(config)
    assert "CUDA graphs are not captured, as the plan has shape tensors" in caplog.text
