"""NVIDIA's formats: folders of TensorRT-LLM (engines, and checkpoints that engines are built from),
and archives of NeMo (`.nemo`).

Weights in NeMo's archives are pickles behind its own classes, so nothing but NeMo can read them. An
archive is read under limits, and nothing of it is unpacked or run.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from penstock.models.sources.draft import Draft, SourceError
from penstock.models.sources.folder import json_object
from penstock.system.archives import ArchiveError
from penstock.system.tar_archive import tar_texts


def tensorrt_llm(folder: Path, name: str) -> Draft | None:
    """The model of a folder with `rank0.engine` or `rank0.safetensors`; `None` for any other."""
    engines, checkpoints = (
        sorted(folder.glob(f"rank*.{ending}")) for ending in ("engine", "safetensors")
    )
    if not (engines or checkpoints):
        return None
    config = json_object(folder / "config.json")
    try:
        mapping = dict(config.get("pretrained_config", config).get("mapping", {}))
        ranks, tensor, pipeline = (
            int(mapping.get(each, 1)) for each in ("world_size", "tp_size", "pp_size")
        )
    except (ArithmeticError, AttributeError, TypeError, ValueError) as error:
        raise SourceError(f"'{folder}/config.json' is not what TensorRT-LLM writes") from error
    files = engines or checkpoints
    if len(files) != ranks:
        raise SourceError(
            f"'{folder}' has {len(files)} of the {ranks} files that its config.json names"
            " (mapping.world_size): rank0 and so on"
        )
    draft = Draft(name, batches=False)
    draft.links = {f"weights/{each.name}": each for each in folder.iterdir() if each.is_file()}
    lines = ["model: weights", f"tensor_parallel_size: {tensor}"]
    if pipeline > 1:
        lines.append(f"pipeline_parallel_size: {pipeline}")
    if not any((folder / each).exists() for each in ("tokenizer.json", "tokenizer_config.json")):
        lines.append(
            "# The folder has no tokenizer: copy that of the model that it was made from, and name"
            " its folder.\ntokenizer: tokenizer"
        )
    lines += ["triton_config:", "  decoupled: true", ""]
    draft.texts["model.yaml"] = "\n".join(lines)
    what = "engines" if engines else "a checkpoint"
    draft.backend("tensorrt_llm", f"{what} of TensorRT-LLM, for {ranks} GPU{'s' * (ranks > 1)}")
    return draft


# -- NeMo ----------------------------------------------------------------------------------------

_LONGEST_TEXT = 1 << 20
_CONFIG = re.compile(r"(?:.*/)?(?:\w+_)?model_config\.yaml")
_TARGET = re.compile(rb"^target: *['\"]?([\w.]+)", re.MULTILINE)
_LANGUAGE_MODELS = ".nlp.models.language_modeling."


def refuse_nemo(path: Path) -> None:
    """Raise `SourceError` with the command of NeMo that makes a model of the archive."""
    target = _target(path)
    written = shlex.quote(str(path))
    if _LANGUAGE_MODELS in target:
        code = (
            "from nemo.export.tensorrt_llm import TensorRTLLM; "
            f"TensorRTLLM('engines').export({str(path)!r}, 'llama', tensor_parallelism_size=1)"
        )
        then = (
            "penstock import engines REPOSITORY (NeMo's name of the architecture, here 'llama', and"
            " the number of GPUs are yours to set)"
        )
    else:
        code = (
            "from nemo.core import ModelPT; "
            f"ModelPT.restore_from({str(path)!r}, map_location='cpu')"
            f".export({path.stem + '.onnx'!r})"
        )
        then = f"penstock import {shlex.quote(path.stem + '.onnx')} REPOSITORY"
    raise SourceError(
        f"{written} is a model of NeMo ({target}), which only NeMo can read. It unpacks"
        " the archive and the pickles in it, which may run any code: trust who made it. In an"
        f" environment with nemo_toolkit run:\n\n    python -c {shlex.quote(code)}\n\n"
        f"and then: {then}"
    )


def _target(path: Path) -> str:
    """The class of the model, by the archive's configuration."""
    try:
        for name, content in tar_texts(path, _CONFIG, _LONGEST_TEXT):
            if found := _TARGET.search(content):
                return found[1].decode()
            raise SourceError(f"'{path}' is no archive of NeMo: its '{name}' has no target")
    except FileNotFoundError as error:
        raise SourceError(f"there is no file '{path}'") from error
    except ArchiveError as error:
        raise SourceError(f"'{path}' is no archive of NeMo: {error}") from error
    raise SourceError(f"'{path}' is no archive of NeMo: it has no model_config.yaml with a target")
