"""Which code runs a model: every meeting of a runtime and of what lies in the directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.core.backend import find_backend
from penstock.core.config import ModelConfig
from penstock.core.errors import ModelLoadError
from penstock.models.loading.backends import backend_of

PYTHON = find_backend("python")
IDENTITY = find_backend("identity")
PYTORCH = find_backend("pytorch")

# Name, runtime, files of `<directory>/<name>`, and the backend class.
FOUND = [
    ("identity", "", "", IDENTITY),
    ("identity", "", "libtriton_identity.so", IDENTITY),
    ("identity", "", "libtriton_identity.so model.py", IDENTITY),
    ("identity", "libtriton_identity.so", "model.py", IDENTITY),
    ("identity", "", "model.py", PYTHON),
    ("identity", "model.py", "libtriton_identity.so model.py", PYTHON),
    ("mine", "", "model.py", PYTHON),
    ("mine", "model.py", "model.py", PYTHON),
    ("python", "", "model.py", PYTHON),
    ("pytorch", "model.py", "", PYTORCH),
    ("pytorch", "model.py", "libtriton_pytorch.so model.py", PYTORCH),
    ("pytorch", "model.py", "model.py", PYTHON),
]

REFUSED = [
    ("mine", "", "", "unable to find backend 'mine'; installed .*; there is no '.*/mine/model.py'"),
    ("mine", "", "libtriton_mine.so", "'.*/libtriton_mine.so' is a shared library"),
    ("mine", "", "libtriton_mine.so model.py", "'.*/libtriton_mine.so' is a shared library"),
    ("mine", "model.py", "", "library 'model.py' for model 'm', searched: '.*/mine/model.py'"),
    ("identity", "model.py", "", "searched: '.*/identity/model.py'"),
    (
        "../mine",
        "model.py",
        "model.py",
        "unable to find backend '../mine': a path is not a backend name",
    ),
    ("onnxruntme", "", "", "backend 'onnxruntme'; installed .*; did you mean 'onnxruntime'"),
    ("dali", "", "", r"run the pipeline with nvidia.dali in a model.py of backend 'python'"),
    (
        "checksum",
        "",
        "libtriton_checksum.so",
        "backends in C\\+\\+ are not loaded: write its work as a",
    ),
    ("..", "", "model.py", "unable to find backend '..': a path is not a backend name"),
    ("hugectr", "", "libtriton_hugectr.so", "export the network to ONNX .* looks up the embedding"),
    ("hps", "", "", "export the network to ONNX and serve it with backend 'onnxruntime'"),
    ("rapids_linear", "", "", "forests are served with backend 'fil', other models .* with cuml"),
    ("fastertransformer", "", "", "language models are served with backend 'vllm' or 'tensorrt_ll"),
    ("paddle", "", "", "convert the model with paddle2onnx"),
    ("armnn_tflite", "", "", "backend 'openvino' reads TFLite"),
    ("stateful", "", "", "keep the state in the server: sequence_batching with a 'state'"),
    ("dlpack", "", "", "tensors pass as DLPack without a backend of their own: to_dlpack"),
    ("identity", "libtriton_mine.so", "", "unable to find backend library 'libtriton_mine.so'"),
]


@pytest.mark.contract("PY-43")
@pytest.mark.parametrize(("name", "runtime", "files", "backend"), FOUND)
def test_what_runs_a_model(
    name: str, runtime: str, files: str, backend: type, tmp_path: Path
) -> None:
    settings = written(tmp_path, name, files)
    found = backend_of(ModelConfig(name="m", backend=name, runtime=runtime), settings)
    assert found.backend is backend
    shared = backend is PYTHON and name != "python"
    assert found.config.runtime == ("model.py" if shared else runtime)
    assert (found.path == str(tmp_path / name / "model.py")) is shared
    assert set(found.files()) == ({name, "python"} if shared else {name})


@pytest.mark.contract("PY-43", "B-19")
@pytest.mark.parametrize(("name", "runtime", "files", "why"), REFUSED)
def test_a_model_without_a_backend_is_refused(
    name: str, runtime: str, files: str, why: str, tmp_path: Path
) -> None:
    settings = written(tmp_path, name, files)
    with pytest.raises(ModelLoadError, match=why):
        backend_of(ModelConfig(name="m", backend=name, runtime=runtime), settings)


def test_a_runtime_in_a_directory_needs_one() -> None:
    with pytest.raises(ModelLoadError, match="needs --backend-directory"):
        backend_of(ModelConfig(name="m", backend="mine", runtime="model.py"), {})


def written(directory: Path, name: str, files: str) -> dict[str, str]:
    """The backend setting of a directory that has these files of a backend."""
    (directory / name).mkdir(exist_ok=True)
    for file in files.split():
        (directory / name / file).touch()
    return {"backend-directory": str(directory)}
