"""Folders of TensorRT-LLM: its engines, and checkpoints that engines are built from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from penstock.models.sources.draft import Draft, SourceError

_LONGEST_JSON = 16 << 20


def tensorrt_llm(folder: Path, name: str) -> Draft | None:
    """The model of a folder with `rank0.engine` or `rank0.safetensors`; `None` for any other."""
    engines, checkpoints = (
        sorted(folder.glob(f"rank*.{ending}")) for ending in ("engine", "safetensors")
    )
    if not (engines or checkpoints):
        return None
    config = _read(folder / "config.json")
    try:
        mapping = dict(config.get("pretrained_config", config).get("mapping", {}))
        ranks, tensor, pipeline = (
            int(mapping.get(each, 1)) for each in ("world_size", "tp_size", "pp_size")
        )
    except (AttributeError, TypeError, ValueError) as error:
        raise SourceError(f"'{folder}/config.json' is not what TensorRT-LLM writes") from error
    files = engines or checkpoints
    if len(files) != ranks:
        raise SourceError(
            f"'{folder}' has {len(files)} of the {ranks} files that its config.json names"
            " (mapping.world_size): rank0 and so on"
        )
    draft = Draft(name)
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


def _read(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > _LONGEST_JSON:
            raise SourceError(f"'{path}' has more than {_LONGEST_JSON:,} bytes")
        found = json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise SourceError(f"there is no '{path}', which TensorRT-LLM needs") from error
    except (ValueError, RecursionError) as error:
        raise SourceError(f"'{path}' is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise SourceError(f"'{path}' is not what TensorRT-LLM writes")
    return found
