"""A tensor engine: the model is `model.npz`, a matrix and a vector; `y = x @ matrix + vector`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from penstock.backend import (
    Array,
    DataType,
    InstanceContext,
    InternalError,
    ModelConfig,
    ModelLoadError,
)
from penstock_backends.tensor_models import Graph, GraphTensor, TensorModelBackend


class LinearGraph(Graph):
    engine = "linear"

    def __init__(self, path: Path) -> None:
        try:
            with np.load(path, allow_pickle=False) as arrays:
                self._matrix = arrays["matrix"].astype(np.float32)
                self._vector = arrays["vector"].astype(np.float32)
            length, width = self._matrix.shape
        except (OSError, EOFError, BadZipFile, ValueError, KeyError) as error:
            raise ModelLoadError(f"cannot read '{path}': {error}") from error
        self.inputs = {"x": GraphTensor("x", DataType.FP32, (-1, length))}
        self.outputs = {"y": GraphTensor("y", DataType.FP32, (-1, width))}
        self.defaults = {}

    def run(self, feeds: Mapping[str, Array], names: Sequence[str]) -> list[Array]:
        try:
            y = feeds["x"] @ self._matrix + self._vector
        except ValueError as error:
            raise InternalError(f"linear error: {error}") from error
        return [y for _ in names]


class LinearBackend(TensorModelBackend):
    filename = "model.npz"

    @classmethod
    def read(cls, config: ModelConfig, path: Path, settings: Mapping[str, str]) -> Graph:
        return LinearGraph(path)

    @classmethod
    def open(cls, context: InstanceContext, path: Path) -> Graph:
        return LinearGraph(path)
