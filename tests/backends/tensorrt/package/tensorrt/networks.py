"""The networks of plans of the stand-in: what shape their output `y` has, and its values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from cuda.bindings import runtime as cuda

Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class Network:
    shape: Callable[[Shapes, Shapes], tuple[int, ...]]
    """The shape of `y`, by the shapes of inputs and the values of shape tensors."""
    run: Callable[[Mapping[str, Any], Shapes], dict[str, Any]]


def _stretched(inputs: Mapping[str, Any], values: Shapes) -> dict[str, Any]:
    """Each row repeated to as many columns as the shape tensor `size` says; `shape` tells it."""
    rows, columns = values["size"]
    y = np.resize(inputs["x"], (rows, columns))
    return {"y": y, "shape": np.array([rows, columns])}


def _looked_up(inputs: Mapping[str, Any], _: Shapes) -> dict[str, Any]:
    """A row of a table for each number; a GPU does not forgive one beyond it."""
    if inputs["x"].min() < 0 or inputs["x"].max() > 9:
        raise cuda.Refused(cuda.gpu._fail(cuda.cudaError_t.cudaErrorIllegalAddress))
    return {"y": inputs["x"] / 2}


NETWORKS = {
    "lookup": Network(lambda shapes, _: shapes["x"], _looked_up),
    "tail": Network(
        lambda shapes, values: (shapes["x"][0], shapes["x"][1] - values["from"][1]),
        lambda inputs, values: {"y": inputs["x"][:, values["from"][1] :]},
    ),
    "double": Network(lambda shapes, _: shapes["x"], lambda inputs, _: {"y": 2 * inputs["x"]}),
    "add": Network(
        lambda shapes, _: shapes["a"], lambda inputs, _: {"y": inputs["a"] + inputs["b"]}
    ),
    "bits": Network(lambda shapes, _: shapes["x"], lambda inputs, _: {"y": inputs["x"]}),
    "stretch": Network(lambda _, values: tuple(values["size"]), _stretched),
    "nonzero": Network(lambda _, __: (-1,), lambda inputs, _: {"y": np.flatnonzero(inputs["x"])}),
    "sums": Network(
        lambda shapes, _: (shapes["ends"][0],),
        lambda inputs, _: {
            "y": np.add.reduceat(inputs["x"], np.r_[0, inputs["ends"][:-1].astype(int)])
        },
    ),
    "encoder": Network(
        lambda shapes, _: (shapes["input_ids"][0], 2),
        lambda inputs, _: {
            "y": np.stack([inputs["input_ids"].sum(1), inputs["attention_mask"].sum(1)], 1)
        },
    ),
}
