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
    np.savez(tmp_path / "model.npz", matrix=np.eye(2, 3), vector=np.ones(3))
    assert answer(tmp_path, np.array([[5, 7]], np.float32)).tolist() == [[6, 8, 1]]


@pytest.mark.parametrize("content", [b"no model", b"", b"PK\x03\x04 cut off"])
def test_a_file_that_is_no_model_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "model.npz").write_bytes(content)
    with pytest.raises(ModelLoadError, match="cannot read"):
        answer(tmp_path, np.zeros((1, 2), np.float32))
