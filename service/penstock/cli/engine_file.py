"""Files of engines given as arguments, such as `resnet.onnx`, or the folder of a SavedModel."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from penstock.core.config import ModelConfig
from penstock.core.errors import ConfigError
from penstock.models.config.pbtxt import read_pbtxt
from penstock.settings import ModelFile


class EngineFileError(Exception):
    """A file that cannot be served as it is; the text says what is missing."""


@dataclass(frozen=True, slots=True)
class _Format:
    backend: str
    platform: str = ""
    model_type: str = ""
    """The format's name among those of the backend `fil`."""


_FORMATS = {
    ".onnx": _Format("onnxruntime"),
    ".xml": _Format("openvino"),
    ".tflite": _Format("openvino"),
    ".pt": _Format("pytorch", "pytorch_libtorch"),
    ".pt2": _Format("pytorch", "torch_aoti"),
    ".plan": _Format("tensorrt"),
    ".ubj": _Format("fil", model_type="xgboost_ubj"),
    ".txt": _Format("fil", model_type="lightgbm"),
    ".tl": _Format("fil", model_type="treelite_checkpoint"),
}
"""By the endings of files."""

_SAVED_MODEL = _Format("tensorflow", "tensorflow_savedmodel")

ENDINGS = ", ".join(_FORMATS)

_TREES = """\
# true for classes, false for what the trees add up to
parameters { key: "is_classifier" value: { string_value: "true" } }
"""
_INPUT = """\
# names of forward's arguments, or NAME__NUMBER; without the batch's dimension where max_batch_size
# is not 0
input [ { name: "input__0" data_type: TYPE_FP32 dims: [ -1 ] } ]
"""
_OUTPUT = 'output [ { name: "output__0" data_type: TYPE_FP32 dims: [ -1 ] } ]\n'


def engine_file(name: str, path: Path) -> ModelFile | None:
    """The model of a file or folder, by default called as it is; `None` if no engine has it.

    Its configuration is that of the file of its name that ends in `.pbtxt`, if there is one, and
    what follows from its ending. Raises `EngineFileError`.
    """
    found = _SAVED_MODEL if (path / "saved_model.pb").is_file() else _FORMATS.get(path.suffix)
    if found is None:
        return None
    if not path.exists():
        raise EngineFileError(f"there is no file '{path}'")
    beside = path.with_suffix(".pbtxt")
    text, config = _read(beside)
    missing = "".join(_missing(found, config))
    if missing:
        raise EngineFileError(
            f"'{path}' does not say how it is served. Write these lines, changed to what is true of"
            f" the model, into '{beside}':\n\n{missing}"
        )
    lines = [*_known(found, path.name, config), text]
    return ModelFile(name or _model_name(path), path, config="\n".join(lines))


def _read(path: Path) -> tuple[str, ModelConfig]:
    """A configuration that lies beside a model, and its text; an empty one if none does."""
    if not path.exists():
        return "", ModelConfig()
    try:
        return path.read_text(errors="replace"), read_pbtxt(path)
    except (ConfigError, OSError) as error:
        raise EngineFileError(str(error)) from error


def _known(found: _Format, filename: str, config: ModelConfig) -> Iterator[str]:
    """The lines that follow from the file, where the configuration has none of its own."""
    if not (config.backend or config.platform):
        yield f'backend: "{found.backend}"'
        if found.platform:
            yield f'platform: "{found.platform}"'
    if not config.default_model_filename:
        yield f"default_model_filename: {json.dumps(filename, ensure_ascii=False)}"
    if found.model_type and config.parameter("model_type") is None:
        value = f'value: {{ string_value: "{found.model_type}" }}'
        yield f'parameters {{ key: "model_type" {value} }}'


def _missing(found: _Format, config: ModelConfig) -> Iterator[str]:
    """The lines that no file of the format says, and its backend requires."""
    given = {name for name in ("is_classifier", "output_class") if name in config.parameters}
    if found.backend == "fil" and not given:
        yield _TREES
    if found.backend == "pytorch":
        if not config.input:
            yield _INPUT
        if not config.output:
            yield _OUTPUT


def _model_name(path: Path) -> str:
    """The file's name without its ending; that of the folder for `model`, or for a number."""
    name = path.name.removesuffix(path.suffix if path.is_file() else ".savedmodel")
    while (name == "model" or name.isdecimal()) and path.parent != path:
        path = path.parent
        name = path.name
    return re.sub(r"[^\w.-]", "_", name) or "model"
