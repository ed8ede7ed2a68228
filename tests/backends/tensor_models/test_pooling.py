"""Vectors of texts, pooled from the states of their tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from penstock.backend import Array, DataType
from penstock_backends.tensor_models.graph import Graph, GraphTensor
from penstock_backends.tensor_models.pooling import PooledGraph

MASK = np.array([[1, 1, 0], [0, 1, 1], [1, 0, 0]], np.int64)
"""Padding on the right, on the left, and one token."""


class _States(Graph):
    """A graph whose state of each token is what it was given."""

    engine = "test"

    def __init__(self, states: Array, *more: GraphTensor) -> None:
        kind = DataType.FP16 if states.dtype == np.float16 else DataType.FP32
        self.inputs, self.defaults = {}, {}
        states_tensor = GraphTensor("states", kind, (-1, -1, states.shape[2]))
        self.outputs = {each.name: each for each in (states_tensor, *more)}
        self._states = states

    def run(self, feeds: Mapping[str, Array], names: Sequence[str]) -> list[Array]:
        return [self._states for _ in names]


def _pooled(states: Array, kind: str, *, normalized: bool = False) -> Array:
    graph = PooledGraph(_States(states), kind, normalized)
    assert graph.outputs["states"].dims == (-1, states.shape[2])
    (found,) = graph.run({"attention_mask": MASK}, ["states"])
    assert found.dtype == states.dtype
    return found


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("mean", [[1, 2], [9, 10], [12, 13]]), ("cls", [[0, 1], [8, 9], [12, 13]]),
     ("last", [[2, 3], [10, 11], [12, 13]])],
)  # fmt: skip
def test_padding_does_not_count(kind: str, expected: list[list[int]]) -> None:
    states = np.arange(18, dtype=np.float32).reshape(3, 3, 2)
    assert _pooled(states, kind).tolist() == expected


def test_vectors_get_the_length_one() -> None:
    lengths = np.linalg.norm(
        _pooled(np.ones((3, 3, 4), np.float32) * 7, "mean", normalized=True), axis=1
    )
    np.testing.assert_allclose(lengths, 1, rtol=1e-6)


def test_half_floats_do_not_overflow() -> None:
    states = np.full((3, 3, 64), 60_000, np.float16)
    assert np.isfinite(_pooled(states, "mean")).all()
    np.testing.assert_allclose(_pooled(states, "mean", normalized=True), 1 / 8, rtol=1e-3)


def test_a_graph_that_has_pooled_is_left_at_that() -> None:
    ready = GraphTensor("sentence_embedding", DataType.FP32, (-1, 2))
    graph = PooledGraph(_States(np.zeros((1, 1, 2), np.float32), ready), "mean", False)
    assert [*graph.outputs] == ["sentence_embedding"]
