import asyncio
from pathlib import Path

import numpy as np
import pytest

from penstock.backend import ModelConfig, ModelLoadError
from penstock.testing import running
from penstock_linear import LinearBackend


def answer(folder: Path, x: np.ndarray) -> np.ndarray:
    async def response() -> np.ndarray:
        async with running(LinearBackend, ModelConfig("linear"), folder) as instance:
            assert instance.config.max_batch_size == 4  # from the shapes, by default
            [response] = [response async for response in instance.infer({"x": x})]
            return response.outputs["y"].numpy()

    return asyncio.run(response())


def test_rows_are_multiplied(tmp_path: Path) -> None:
    matrix = np.eye(2, 3, dtype=np.float32)
    np.savez(tmp_path / "model.npz", matrix=matrix, vector=np.ones(3, np.float32))
    assert answer(tmp_path, np.array([[5, 7]], np.float32)).tolist() == [[6, 8, 1]]


def test_a_file_that_is_no_model_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model.npz").write_bytes(b"no model")
    with pytest.raises(ModelLoadError, match="cannot read"):
        answer(tmp_path, np.zeros((1, 2), np.float32))
