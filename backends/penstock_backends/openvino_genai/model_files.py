"""The files of a model in a version directory: weights and tokenizer, named or found."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Final

from penstock.backend import ModelLoadError

_GGUF: Final = "model.gguf"
OPENVINO: Final = "openvino_model.xml"
_WITH_IMAGES: Final = "openvino_language_model.xml"
_TOKENIZER: Final = "tokenizer.json"
_PART: Final = re.compile(r"-\d{5}-of-\d{5}$")
"""How the name of a GGUF file ends that is one of several."""


def find_model(version_path: Path, named: str | None) -> Path:
    """A GGUF file, or a folder in OpenVINO's format; raises `ModelLoadError` that says what to do.

    `named` is a file or folder from the version directory. A folder has `model.gguf`,
    `openvino_model.xml`, or one GGUF file of any name.
    """
    if named is None:
        return _in_folder(version_path, version_path)
    path = version_path / named
    if not path.exists():
        raise ModelLoadError(f"no model at '{path}', which 'model' in model.json names")
    if path.is_dir():
        return _in_folder(path, version_path)
    return path.parent if path.suffix == ".xml" else path


def find_tokenizer(version_path: Path, named: str | None, model: Path) -> Path:
    """The tokenizer: a named file, else that of the version directory or beside the model."""
    if named is not None:
        places = [version_path / named]
    else:
        beside = model.parent if model.is_file() else model
        places = [version_path / _TOKENIZER, beside / _TOKENIZER]
    for place in places:
        if place.is_file():
            return place
    raise ModelLoadError(
        f"no tokenizer at '{places[0]}': tokenizer.json is needed, also beside a GGUF file; it is "
        "among the files of the model that this one was made from"
    )


def _in_folder(folder: Path, version_path: Path) -> Path:
    if (folder / _GGUF).is_file():
        return folder / _GGUF
    if (folder / OPENVINO).is_file():
        return folder
    found = sorted(folder.glob("*.gguf"))
    if any(_PART.search(path.stem) for path in found):
        raise ModelLoadError(
            f"'{folder}' has a GGUF file in parts, which the engine does not read: join them, as "
            f"with llama-gguf-split --merge {found[0].name} {_GGUF}"
        )
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(path.name for path in found)
        raise ModelLoadError(
            f"'{folder}' has several models: {names}; 'model' in model.json says which to serve"
        )
    raise ModelLoadError(f"no {_GGUF} or {OPENVINO} in '{folder}'{_way_out(folder, version_path)}")


def _way_out(folder: Path, version_path: Path) -> str:
    """Advice for a folder without a model, by the files that it has instead; often empty."""
    if (folder / _WITH_IMAGES).is_file():
        return "; a model that takes images is not supported by this backend"
    if any(folder.glob("*.safetensors")) or any(folder.glob("pytorch_model*.bin")):
        return (
            "; make one of its weights for transformers: "
            f"optimum-cli export openvino --model '{folder}' --task text-generation-with-past NEW"
        )
    for pattern in (OPENVINO, "*.gguf"):
        if inside := sorted(folder.glob(f"*/{pattern}")):
            name = os.path.relpath(inside[0].parent, version_path)
            text = json.dumps({"model": name})
            return f"; for the one in folder '{name}' write {text} in model.json"
    return ""
