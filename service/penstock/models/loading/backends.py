"""Finds the backend of a model: an installed one, or a `model.py` in the backend directory."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from penstock.core.backend import Backend, WithVariants, find_backend, installed_backends
from penstock.core.config import ModelConfig
from penstock.core.errors import ModelLoadError
from penstock.core.nearest_name import suggestion

DIRECTORY = "backend-directory"
"""The backend setting that names the folder of backends written as a `model.py`."""

PYTHON_FILE = "model.py"
"""The runtime of models with such a backend, which the Python backend executes (PY-43)."""

_PYTHON = "python"

_OF_MODULES = frozenset(("pytorch",))
"""Backends that run a `model.py` of the model itself, where the backend directory has none."""

_EMBEDDING_TABLES = (
    "; export the network to ONNX and serve it with backend 'onnxruntime', behind a model.py of"
    " backend 'python' that looks up the embeddings, joined to it as an ensemble"
)

_INSTEAD = {
    "dali": (
        "; run the pipeline with nvidia.dali in a model.py of backend 'python', or do its steps"
        " there with other libraries"
    ),
    "fastertransformer": "; language models are served with backend 'vllm' or 'tensorrt_llm'",
    "hugectr": _EMBEDDING_TABLES,
    "hps": _EMBEDDING_TABLES,
    "paddle": (
        "; convert the model with paddle2onnx and serve it with backend 'onnxruntime', or load it"
        " with paddle in a model.py of backend 'python'"
    ),
    "armnn_tflite": (
        "; backend 'openvino' reads TFLite: set default_model_filename to the name of the file"
    ),
    "stateful": (
        "; keep the state in the server: sequence_batching with a 'state' for each tensor of it,"
        " and backend 'onnxruntime' for the model"
    ),
    "dlpack": (
        "; tensors pass as DLPack without a backend of their own: to_dlpack and from_dlpack of"
        " pb_utils.Tensor in a model.py of backend 'python'"
    ),
}
"""How models of Triton's other backends are served today."""

_RAPIDS = "rapids"
_OF_RAPIDS = (
    "; forests are served with backend 'fil', other models of RAPIDS with cuml in a model.py of"
    " backend 'python'"
)
"""How names of backends made with RAPIDS-Triton begin, and what stands in their place."""

_OF_OTHERS = (
    "; backends in C++ are not loaded: write its work as a model.py of backend 'python', or as a"
    f" '{PYTHON_FILE}' that models share in --{DIRECTORY}"
)
"""How models of any other backend can be served."""


@dataclass(frozen=True, slots=True)
class FoundBackend:
    """A backend class, the configuration with its runtime filled in, and the backend's file."""

    backend: type[Backend]
    config: ModelConfig
    path: str

    def files(self) -> dict[str, str]:
        """The backends in use, name to file; for a `model.py`, the Python backend first."""
        named = {self.config.backend: self.path}
        based = Path(self.path).name == PYTHON_FILE
        return {_PYTHON: _file_of(self.backend), **named} if based else named


def backend_of(config: ModelConfig, settings: Mapping[str, str]) -> FoundBackend:
    """The backend of the model; raises `ModelLoadError` if there is none. Reads the disk.

    A `model.py` in the backend directory takes precedence over an installed backend, unless a
    shared library lies beside it: that is Triton's build of the installed backend. The runtime
    `model.py` in a configuration always selects the file.
    """
    if "/" in config.backend or config.backend in (
        ".",
        "..",
    ):  # load requests may name any
        raise ModelLoadError(
            f"unable to find backend '{config.backend}': a path is not a backend name"
        )
    folder = Path(settings[DIRECTORY], config.backend) if settings.get(DIRECTORY) else None
    if config.runtime not in ("", PYTHON_FILE, _library(config.backend)):
        raise ModelLoadError(
            f"unable to find backend library '{config.runtime}' for model '{config.name}': Penstock"
            f" loads no shared libraries; a runtime is '{PYTHON_FILE}' in the backend directory"
        )
    is_there = _is_python(folder, config.backend)
    in_python = config.runtime == PYTHON_FILE and config.backend not in _OF_MODULES
    if in_python or (config.runtime in ("", PYTHON_FILE) and is_there):
        return _python_based(config, folder)
    try:
        backend = find_backend(config.backend)
    except ModelLoadError as error:
        looked = _looked(folder, config.backend)
        raise ModelLoadError(f"{error.message}{looked}{_advice(config.backend)}") from error
    if issubclass(backend, WithVariants):
        backend = backend.variant(settings)
    return FoundBackend(backend, config, _file_of(backend))


def _advice(name: str) -> str:
    """How a model of a backend that is not there can be served."""
    if name in _INSTEAD:
        return _INSTEAD[name]
    if name.startswith(_RAPIDS):
        return _OF_RAPIDS
    return suggestion(name, installed_backends()) or _OF_OTHERS


def _is_python(folder: Path | None, name: str) -> bool:
    """Whether the backend directory has the backend as a `model.py`."""
    if folder is None or name == _PYTHON or (folder / _library(name)).exists():
        return False
    return (folder / PYTHON_FILE).is_file()


def _python_based(config: ModelConfig, folder: Path | None) -> FoundBackend:
    if folder is None:
        raise ModelLoadError(
            f"model '{config.name}': runtime '{PYTHON_FILE}' needs --{DIRECTORY}, where backend"
            f" '{config.backend}' lies"
        )
    path = folder / PYTHON_FILE
    if not path.is_file():
        raise ModelLoadError(
            f"unable to find Python backend based backend library '{PYTHON_FILE}' for model"
            f" '{config.name}', searched: '{path}'"
        )
    return FoundBackend(find_backend(_PYTHON), replace(config, runtime=PYTHON_FILE), str(path))


def _looked(folder: Path | None, name: str) -> str:
    """The files of a missing backend in the backend directory, for the error message."""
    if folder is None:
        return ""
    library = folder / _library(name)
    if library.exists():
        return f"; '{library}' is a shared library, which Penstock does not load"
    return f"; there is no '{folder / PYTHON_FILE}' either"


def _library(name: str) -> str:
    return f"libtriton_{name}.so"


def _file_of(backend: type[Backend]) -> str:
    return getattr(sys.modules.get(backend.__module__), "__file__", None) or ""
