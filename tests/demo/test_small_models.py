"""`simple` and `identity`, computed by ONNX Runtime."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnxruntime = pytest.importorskip("onnxruntime")


def session(repository: Path, model: str) -> Any:
    file = str(repository / model / "1" / "model.onnx")
    return onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])


def test_simple_adds_and_subtracts(demo_repository: Path) -> None:
    first = np.arange(32, dtype=np.int32).reshape(2, 16)
    second = np.full((2, 16), 3, np.int32)
    total, difference = session(demo_repository, "simple").run(
        ["OUTPUT0", "OUTPUT1"], {"INPUT0": first, "INPUT1": second}
    )
    np.testing.assert_array_equal(total, first + second)
    np.testing.assert_array_equal(difference, first - second)


@pytest.mark.parametrize("shape", [(1, 1), (8, 1000), (3, 0)])
def test_identity_returns_its_input(demo_repository: Path, shape: tuple[int, int]) -> None:
    sent = np.random.default_rng(0).random(shape, np.float32)
    (received,) = session(demo_repository, "identity").run(["OUTPUT0"], {"INPUT0": sent})
    np.testing.assert_array_equal(received, sent)
