"""Vectors of texts: the states that a graph has for each token, made one vector for each text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from penstock.backend import Array, ConfigError, DataType, ModelConfig, Tensor
from penstock_backends.tensor_models.graph import Graph, GraphTensor

POOLING = "penstock.pooling"
NORMALIZE = "penstock.normalize"

_MASK = "attention_mask"
_READY = "sentence_embedding"
_FLOATS = (DataType.FP16, DataType.FP32, DataType.FP64)


def _mean(states: Array, mask: Array) -> Array:
    weights = mask[:, :, None].astype(states.dtype)
    total: Array = (states * weights).sum(1) / np.maximum(weights.sum(1), 1)
    return total


def _first(states: Array, mask: Array) -> Array:
    found: Array = states[np.arange(len(states)), mask.argmax(1)]
    return found


def _last(states: Array, mask: Array) -> Array:
    found: Array = states[np.arange(len(states)), mask.shape[1] - 1 - mask[:, ::-1].argmax(1)]
    return found


_KINDS: Mapping[str, Callable[[Array, Array], Array]] = {
    "mean": _mean,
    "cls": _first,
    "last": _last,
}


class PooledGraph:
    """A graph of a text encoder whose outputs [rows, tokens, width] are pooled to [rows, width].

    Padding does not count. A graph that has pooled by itself is left at that: its output is called
    `sentence_embedding`, as exported ones of sentence-transformers have it.
    """

    def __init__(self, inner: Graph, kind: str, normalized: bool) -> None:
        self._inner, self._pool, self._normalized = inner, _KINDS[kind], normalized
        self.engine, self.inputs, self.defaults = inner.engine, inner.inputs, inner.defaults
        states = {n: _pooled(each) for n, each in inner.outputs.items() if _has_states(each)}
        ready = inner.outputs.get(_READY)
        self.outputs = {_READY: ready} if ready else states or dict(inner.outputs)

    def array(self, name: str, tensor: Tensor) -> Array:
        return self._inner.array(name, tensor)

    def joined(self, name: str, arrays: Sequence[Array]) -> Array:
        return self._inner.joined(name, arrays)

    def run(self, feeds: Mapping[str, Array], names: Sequence[str]) -> list[Array]:
        """The outputs `names`, of which those with a row for each token are pooled."""
        found = self._inner.run(feeds, names)
        mask = feeds.get(_MASK)
        if mask is None:
            mask = np.ones(feeds["input_ids"].shape, np.int64)
        return [self._vectors(array, mask) for array in found]

    def _vectors(self, array: Array, mask: Array) -> Array:
        wide = array.astype(np.result_type(array.dtype, np.float32), copy=False)  # sums overflow
        vectors = self._pool(wide, mask) if array.ndim == 3 else wide
        if self._normalized and vectors.ndim == 2:
            lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
            vectors = vectors / np.maximum(lengths, 1e-12)
        found: Array = vectors.astype(array.dtype, copy=False)
        return found

    def close(self) -> None:
        self._inner.close()


def pooled(config: ModelConfig, graph: Graph) -> Graph:
    """The graph as the parameters `penstock.pooling` and `penstock.normalize` want it."""
    kind = config.parameter(POOLING)
    return graph if kind is None else PooledGraph(graph, kind, normalizes(config))


def normalizes(config: ModelConfig) -> bool:
    """Whether vectors get the length 1."""
    return config.parameter(NORMALIZE) == "true"


def check_pooling(config: ModelConfig, reads_texts: bool) -> None:
    """Check both parameters; raises `ConfigError`."""
    kind, normalize = config.parameter(POOLING), config.parameter(NORMALIZE)
    if kind is not None and kind not in _KINDS:
        raise ConfigError(
            f"model '{config.name}': parameter '{POOLING}' is one of {', '.join(_KINDS)}, not"
            f" '{kind}'"
        )
    if normalize not in (None, "true", "false"):
        raise ConfigError(
            f"model '{config.name}': parameter '{NORMALIZE}' is true or false, not '{normalize}'"
        )
    if normalize is not None and kind is None:
        raise ConfigError(f"model '{config.name}': '{NORMALIZE}' goes with '{POOLING}'")
    if kind is not None and not reads_texts:
        raise ConfigError(
            f"model '{config.name}': '{POOLING}' is of text encoders, which have a tokenizer"
            " (penstock.tokenizer)"
        )


def _has_states(tensor: GraphTensor) -> bool:
    return tensor.datatype in _FLOATS and len(tensor.dims) == 3


def _pooled(tensor: GraphTensor) -> GraphTensor:
    return replace(tensor, dims=(tensor.dims[0], tensor.dims[2]))
