"""`EngineArguments`: the arguments of vLLM's engine from `model.json`, passed on unchanged."""

from __future__ import annotations

import getpass
import json
import os
import re
from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

from penstock.backend import SHARED_TMPDIR, ModelLoadError
from penstock_backends.vllm.arguments.openai_arguments import OpenAiArguments, take_openai

FILE = "model.json"

NOT_INSTALLED = "backend 'vllm' needs vLLM: pip install 'penstock[vllm]'"

_PATHS = ("model", "tokenizer", "hf_config_path", "generation_config", "lora_modules")
_CPU_CACHE_GIB = "1"
_MOST_SEQUENCES = "128"
"""Of one request, as with OpenAI: vLLM begins all of them in one turn of the event loop, 1.5 ms and
more for each. Its own default is 16,384."""

_LOADERS = ("auto", "fastsafetensors", "hf", "instanttensor", "mistral", "safetensors")
"""The values of `load_format` with which files of safetensors are read whole."""

MEDIA_CONNECTOR = "penstock"
"""The name under which vLLM finds our fetcher for the media of its own routes."""


@dataclass(frozen=True, slots=True)
class EngineArguments:
    """The keyword arguments of `AsyncEngineArgs`, paths inside the version directory resolved."""

    values: dict[str, Any]
    path: Path
    openai: OpenAiArguments = field(default_factory=OpenAiArguments)

    @property
    def devices(self) -> int:
        """The number of devices that the engine, with its replicas, uses on this machine."""
        values = self.values
        replicas = values.get("data_parallel_size_local") or values.get("data_parallel_size") or 1
        each = (values.get(f"{name}_parallel_size") or 1 for name in ("tensor", "pipeline"))
        return int(replicas) * prod(map(int, each))

    @property
    def local(self) -> bool:
        """Whether the model is on this machine, so nothing is downloaded."""
        return Path(str(self.values.get("model", ""))).exists()

    @property
    def model(self) -> str:
        """The name of what the engine serves; of a model on this machine, its last part."""
        served = self.values.get("served_model_name")
        names = served if isinstance(served, list) else [served]
        if names and names[0]:
            return str(names[0])
        name = str(self.values.get("model", ""))
        return Path(name).name if self.local else name

    @property
    def keeps_statistics(self) -> bool:
        """Whether the engine counts and times its requests, which `disable_log_stats` ends."""
        return str(self.values.get("disable_log_stats", "")).lower() != "true"

    @property
    def enable_lora(self) -> bool:
        """Whether LoRA is enabled; both `true` and `"true"` are common."""
        return str(self.values.get("enable_lora", "")).lower() == "true"


def read_arguments(version_path: Path) -> EngineArguments:
    """Read the arguments of a version directory; raises `ModelLoadError`."""
    path = version_path / FILE
    if not path.is_file():
        raise ModelLoadError(
            f"'{FILE}' containing vllm engine args must be provided in '{version_path}'"
        )
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ModelLoadError(f"'{path}' is not JSON: {error}") from error
    if not isinstance(values, dict):
        raise ModelLoadError(f"'{path}' must hold a JSON object")
    if not isinstance(values.get("model"), str) or not values["model"]:
        raise ModelLoadError(
            f"'{path}' must have 'model': a folder beside it, or a model's name on Hugging Face"
        )
    for key in _PATHS:
        inside = version_path / values[key] if isinstance(values.get(key), str) else None
        if inside is not None and inside.exists():
            values[key] = str(inside)
    arguments = EngineArguments(values, path, take_openai(values, path))
    if "enable_lora" in values:
        values["enable_lora"] = arguments.enable_lora
    return arguments


def advice(arguments: EngineArguments, why: str) -> str:
    """Advice to append to `why`, the engine's own error about these arguments; often empty."""
    dtype = str(arguments.values.get("dtype", "")).lower()
    if dtype.startswith(("fp8", "float8")):
        return (
            f"; '{dtype}' is a quantization, not a type to compute in: write "
            '"quantization": "fp8" and leave "dtype" out'
        )
    if "Address already in use" in why and arguments.values.get("kv_events_config"):
        return (
            "; another process has this port of 'kv_events_config', perhaps the version of this "
            "model that still serves: unload the model before it is loaded again, or give it "
            "another port"
        )
    if not arguments.local:
        model = arguments.values["model"]
        return f"; no folder '{model}' is there, so it was taken for a model's name on Hugging Face"
    return ""


def prepare_environment(
    arguments: EngineArguments, environment: MutableMapping[str, str] = os.environ
) -> None:
    """Set variables that vLLM reads on import, unless the operator has set them.

    Spawned, not forked: a forked engine would keep this process's connection to the server open.
    """
    environment.setdefault("VLLM_NO_USAGE_STATS", "1")
    environment.setdefault("VLLM_CPU_KVCACHE_SPACE", _CPU_CACHE_GIB)
    environment.setdefault("VLLM_WORKER_MULTIPROC_METHOD", "spawn")
    environment.setdefault("VLLM_MEDIA_CONNECTOR", MEDIA_CONNECTOR)
    environment.setdefault("VLLM_MAX_N_SEQUENCES", _MOST_SEQUENCES)
    # Each start would read PyTorch's headers for five seconds, to find that nothing is to compile.
    environment.setdefault("TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS", "0")
    if arguments.local:
        environment.setdefault("HF_HUB_OFFLINE", "1")
    if shared := environment.get(SHARED_TMPDIR):  # compiled kernels are kept for later starts
        environment.setdefault("TORCHINDUCTOR_CACHE_DIR", f"{shared}/torchinductor_{_user()}")


def _user() -> str:
    """The user name, as PyTorch uses it in the name of its cache folder."""
    try:
        return re.sub(r'[\\/:*?"<>|]', "_", getpass.getuser())
    except (KeyError, OSError):
        return f"uid_{os.getuid()}"


# -- files of weights, by the rule of vLLM's default loader ----------------------------------------


def safetensors_of(arguments: EngineArguments) -> Sequence[Path]:
    """The files of safetensors that are opened; empty where weights are others, or elsewhere.

    Raises `ModelLoadError` for an index that names a file which is not there.
    """
    folder = Path(arguments.values["model"])
    loader = str(arguments.values.get("load_format", "auto")).lower()
    if loader not in _LOADERS or not folder.is_dir():
        return ()
    official = _weights(folder, "consolidated*") if loader in ("auto", "mistral") else ()
    found = official or (() if loader == "mistral" else _weights(folder, "*"))
    name = "consolidated" if official else "model"
    index = folder / f"{name}.safetensors.index.json"
    if not found or not index.is_file():
        return found
    named = _named(index)
    for file in named:
        if folder / file not in found:
            raise ModelLoadError(f"'{index}' names '{file[:80]}', which is not beside it")
    return [path for path in found if path.name in named]


def _weights(folder: Path, name: str) -> Sequence[Path]:
    """Files, and links that lead nowhere; a pipe would block who reads it."""
    found = sorted(folder.glob(f"{name}.safetensors"))
    return [path for path in found if path.is_file() or not path.exists()]


def _named(index: Path) -> Sequence[str]:
    try:
        return sorted({str(file) for file in json.loads(index.read_bytes())["weight_map"].values()})
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ModelLoadError(f"'{index}' is no index of weights: {error}") from error
