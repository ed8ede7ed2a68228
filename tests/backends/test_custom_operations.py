"""Libraries of operators: those that a model names, and those that the server is started with."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from tritonclient.grpc import InferenceServerClient, InferInput

from backends.tensor_models import graphs
from harness.serving import serving
from penstock.backend import ModelConfig, ModelLoadError
from penstock.core.config import Operations
from penstock.testing import running
from penstock_backends.onnxruntime import OnnxRuntimeBackend

_COMPILER = shutil.which("cc")
pytestmark = pytest.mark.needs("cc", "" if _COMPILER else "there is no C compiler here")

_SOURCE = """
#include <stdio.h>

void *RegisterCustomOps(void *options, const void *api) {
    fclose(fopen("%s", "w"));
    return 0;
}
"""
_IDENTITY = """
backend: "identity"
max_batch_size: 8
input { name: "x" data_type: TYPE_FP32 dims: 2 }
output { name: "y" data_type: TYPE_FP32 dims: 2 }
parameters { key: "penstock.host" value { string_value: "process" } }
"""


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """A library as ONNX Runtime takes it, which has no operators and writes `registered`."""
    source, library = tmp_path / "operators.c", tmp_path / "operators.so"
    source.write_text(_SOURCE % (tmp_path / "registered"))
    subprocess.run([str(_COMPILER), "-shared", "-fPIC", "-o", library, source], check=True)
    return library


@pytest.mark.contract("B-22")
async def test_the_libraries_of_a_model_are_registered(library: Path, tmp_path: Path) -> None:
    graphs.save_identity(tmp_path / "model.onnx")
    config = ModelConfig("m", model_operations=Operations((str(library),)))
    async with running(OnnxRuntimeBackend, config, tmp_path) as instance:
        [answer] = [each async for each in instance.infer({"x": np.ones((1, 2), np.float32)})]
    assert answer.outputs["y"].numpy().tolist() == [[1, 1]]
    assert (tmp_path / "registered").exists()
    missing = ModelConfig("m", model_operations=Operations(("/no/such.so",)))
    with pytest.raises(ModelLoadError, match=r"operator library /no/such.so: "):
        async with running(OnnxRuntimeBackend, missing, tmp_path):
            pass


@pytest.mark.slow
@pytest.mark.contract("B-22", "M-20")
def test_a_library_that_the_server_is_started_with_is_in_its_models(
    library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`LD_PRELOAD`, by which PyTorch and TensorRT get operators: model processes have it too."""
    (tmp_path / "models" / "m" / "1").mkdir(parents=True)
    (tmp_path / "models" / "m" / "config.pbtxt").write_text(_IDENTITY)
    monkeypatch.setenv("LD_PRELOAD", str(library))
    with (
        serving(tmp_path / "models", tmp_path / "log") as served,
        InferenceServerClient(served.grpc) as client,
    ):
        x = InferInput("x", [1, 2], "FP32")
        x.set_data_from_numpy(np.ones((1, 2), np.float32))
        assert client.infer("m", [x]).as_numpy("y").tolist() == [[1, 1]]
        [process] = [pid for pid in served.family() if _is_instance(pid)]
        mapped = Path(f"/proc/{process}/maps").read_text()
    assert str(library) in mapped


def _is_instance(pid: int) -> bool:
    return b"hosting" in Path(f"/proc/{pid}/cmdline").read_bytes()
