"""Weights of a model: bytes by data type, from the headers of its files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from penstock.core.errors import ModelLoadError
from penstock.models.sizing.headers.gguf import read_gguf
from penstock.models.sizing.headers.header_file import LongHeaderError
from penstock.models.sizing.headers.onnx import read_onnx
from penstock.models.sizing.headers.openvino_ir import read_openvino_ir
from penstock.models.sizing.headers.safetensors import read_safetensors
from penstock.models.sizing.headers.torch_archive import STORED, is_archive, read_torch_archive

Weights = Mapping[str, int]
"""Bytes by data type, such as `FP16` or `Q4_K`; `as stored` where the files do not say."""

_INDEX = "*.safetensors.index.json"
_MOST_INDEX = 32 << 20
_SAVED_MODEL = "saved_model.pb"


class _Index(msgspec.Struct):
    weight_map: dict[str, str]


_INDEX_FILE = msgspec.json.Decoder(_Index)
"""Reads an index in a tenth of the time that `json` holds Python's lock for."""

_KINDS = (
    ("*.safetensors",),
    ("*.gguf",),
    ("model.onnx",),
    ("*.onnx",),
    ("*.xml",),
    ("*.plan", "*.engine", "*.trt"),
    ("*.pt2",),
    ("*.pt", "*.pth", "pytorch_model*.bin", "*.ckpt"),
    ("*.tflite",),
    ("*.graphdef", "*.pb"),
    ("xgboost.*", "model.txt", "checkpoint.tl", "*.ubj", "*.tl"),
    ("*.joblib", "*.pkl", "*.npz", "*.npy", "*.h5", "*.keras"),
)
"""Patterns of files with weights: of a folder the first that it has counts, since the same weights
often lie there in several formats."""

_ORIGINAL = "consolidated"
"""How the name of a file begins that has the weights of all the others once more."""


@dataclass(frozen=True, slots=True)
class FoundWeights:
    """The weights of a file or a folder, and what is to be said about them."""

    sizes: Weights
    notes: Sequence[str] = ()


def read_weights(path: Path) -> FoundWeights:
    """The weights in a file or a folder; empty for a folder without any.

    Of a file with a header longer than is read, its size counts, with a note. Raises
    `ModelLoadError` for a file that is damaged.
    """
    found, notes = Counter[str](), list[str]()
    files = [path] if not path.is_dir() else _index_files(path) or weight_files(path)
    for file in files:
        try:
            found.update(_of_folder_model(file) if file.is_dir() else _of_file(file))
        except LongHeaderError as error:
            found.update({STORED: _size(file)})
            notes.append(f"{error.message}: the file's size is counted")
    return FoundWeights(dict(found), notes)


def weight_files(folder: Path) -> Sequence[Path]:
    """The files in a folder that have weights; a folder of TensorFlow's counts as one."""
    if (folder / _SAVED_MODEL).is_file():
        return [folder]
    saved = sorted(path.parent for path in folder.glob(f"*/{_SAVED_MODEL}"))
    if saved:
        return saved[:1]
    for patterns in _KINDS:
        found = sorted({file for pattern in patterns for file in folder.glob(pattern)})
        files = [file for file in found if file.is_file()]
        if files:
            return [f for f in files if not f.name.startswith(_ORIGINAL)] or files
    return []


def _index_files(folder: Path) -> Sequence[Path]:
    """The parts that the index of a Hugging Face folder names; empty without one."""
    index = next(iter(sorted(folder.glob(_INDEX))), None)
    if index is None:
        return []
    try:
        if index.stat().st_size > _MOST_INDEX:
            raise ModelLoadError(f"'{index}' is longer than any model's index")
        names = sorted(set(_INDEX_FILE.decode(index.read_bytes()).weight_map.values()))
    except (msgspec.DecodeError, RecursionError, OSError) as error:
        raise ModelLoadError(f"'{index}' is no index of weights: {error}") from error
    for name in names:
        if "/" in name or "\0" in name or name == ".." or not (folder / name).is_file():
            raise ModelLoadError(f"'{index}' names '{name[:80]}', which is not beside it")
    return [folder / name for name in names]


def _of_file(path: Path) -> Weights:
    reader = _READERS.get(path.suffix.lower())
    if reader is not None:
        return reader(path)
    return {STORED: _size(path)}


def _of_folder_model(folder: Path) -> Weights:
    """A SavedModel: its graph, whose constants are weights too, and its variables."""
    files = [folder / _SAVED_MODEL, *sorted(folder.glob("variables/variables.data-*"))]
    return {STORED: sum(map(_size, files))}


def _of_torch(path: Path) -> Weights:
    # What `torch.save` wrote years ago is no archive.
    return read_torch_archive(path) if is_archive(path) else {STORED: _size(path)}


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError as error:
        raise ModelLoadError(f"'{path}' cannot be read: {error.strerror}") from error


_READERS: Mapping[str, Callable[[Path], Weights]] = {
    ".safetensors": read_safetensors,
    ".gguf": lambda path: read_gguf(path).weights,
    ".onnx": read_onnx,
    ".xml": read_openvino_ir,
    ".pt": _of_torch,
    ".pth": _of_torch,
    ".pt2": _of_torch,
    ".bin": _of_torch,
    ".ckpt": _of_torch,
}
