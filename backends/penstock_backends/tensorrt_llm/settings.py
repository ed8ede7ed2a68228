"""`EngineSettings`: the arguments of TensorRT-LLM's `LLM` from `model.yaml` or `model.json`."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any

from penstock.backend import BackendNotInstalledError, ModelLoadError, suggestion
from penstock_backends.tensorrt_llm.parameter_text import as_bool, is_unset
from penstock_backends.tensorrt_llm.plan_files import refuse_plans

FILES = ("model.yaml", "model.json")
PATH = "LLM_CONFIG_PATH"
"""Environment variable that names another file, from the version directory or absolute (TL-02)."""

TEMPLATE = "chat_template"
"""An argument of OpenAI's API: a template, or a file of the version directory."""

_SERVER = "triton_config"
_OF_SERVER = (
    "cancellation_check_period_ms",
    "decoupled",
    "max_batch_size",
    "multimodal",
    "stats_check_period_ms",
)
_PROCESSORS = "logits_post_processors"
_PATHS = ("model", "tokenizer", "custom_tokenizer")
_STATS_SECONDS = 0.1
_TOKEN = 128
"""Characters of the longest token of usual vocabularies."""
_CHARACTERS = 4 << 20
"""Characters of a prompt where the context's length is not known."""


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """The keyword arguments of `LLM`, paths in the version directory resolved, and the rest.

    `decoupled` is `None` where the file does not say. `multimodal` lets requests bring images;
    `processors` are import specifications of logits post-processors by name.
    """

    values: dict[str, Any]
    path: Path
    decoupled: bool | None = None
    max_batch_size: int = 0
    multimodal: bool = False
    processors: Mapping[str, str] | None = None
    stats_seconds: float = _STATS_SECONDS
    openai: Mapping[str, str] | None = field(default_factory=dict)
    """Arguments of OpenAI's API; `None` for a model without it."""

    @property
    def enable_lora(self) -> bool:
        """Whether requests may name adapters."""
        return bool(self.values.get("enable_lora") or self.values.get("lora_config"))

    @property
    def most_sequences(self) -> int:
        """Sequences that the engine runs at once."""
        return int(self.values.get("max_batch_size") or 2048)

    @property
    def longest(self) -> int:
        """Tokens of the engine's context; 0 where the settings do not say."""
        return int(self.values.get("max_seq_len") or 0)

    @property
    def most_characters(self) -> int:
        """Characters of a prompt: more than its tokens could be. Tokenising blocks all others."""
        return self.longest * _TOKEN if self.longest else _CHARACTERS

    @property
    def devices(self) -> int:
        """GPUs that one engine uses."""
        sizes = ("tensor_parallel_size", "pipeline_parallel_size", "context_parallel_size")
        devices = 1
        for name in sizes:
            devices *= int(self.values.get(name) or 1)
        return devices

    @property
    def model(self) -> str:
        """The name of what the engine serves; of a model on this machine, its last part."""
        name = str(self.values["model"])
        return Path(name).name if Path(name).exists() else name

    @property
    def is_engine(self) -> bool:
        """Whether `model` is a folder with TensorRT engines."""
        folder = Path(str(self.values["model"]))
        return folder.is_dir() and any(folder.glob("rank*.engine"))


def settings_path(version_path: Path, environment: Mapping[str, str] = os.environ) -> Path:
    """The file of a version directory; raises `ModelLoadError` if there is none."""
    names = (given,) if (given := environment.get(PATH)) else FILES
    for name in names:
        path = version_path / name
        if path.is_file():
            return path
    refuse_plans(version_path)
    raise ModelLoadError(
        f"'{names[0]}' containing TRT-LLM engine args not found in '{version_path}'"
    )


def read_settings(version_path: Path) -> EngineSettings:
    """Read the settings of a version directory; raises `ModelLoadError`."""
    path = settings_path(version_path)
    values = _set(_parsed(path))
    server = _read_server(values.pop(_SERVER, None) or {}, path)
    processors = values.pop(_PROCESSORS, None)
    openai = _read_openai(values.pop("openai", None), path)
    if processors is not None and not isinstance(processors, dict):
        raise ModelLoadError(
            f"{_PROCESSORS} must be a mapping of name -> 'module.path:attribute' import spec, "
            f"got {type(processors).__name__}"
        )
    if not isinstance(values.get("model"), str):
        raise ModelLoadError(f"'{path}' must say which 'model' to serve")
    for name in _PATHS:
        inside = version_path / values[name] if isinstance(values.get(name), str) else None
        if inside is not None and inside.exists():
            values[name] = str(inside)
    refuse_plans(Path(values["model"]))
    return EngineSettings(
        values,
        path,
        decoupled=_flag(server["decoupled"]) if "decoupled" in server else None,
        max_batch_size=int(_number(server, "max_batch_size", path)),
        multimodal=_flag(server.get("multimodal", False)),
        processors=processors,
        openai=openai,
        stats_seconds=_number(server, "stats_check_period_ms", path) / 1e3 or _STATS_SECONDS,
    )


def _read_server(given: Any, path: Path) -> dict[str, Any]:
    """The keys of `triton_config` that are set; raises `ModelLoadError`."""
    if not isinstance(given, dict):
        raise ModelLoadError(f"'{_SERVER}' in '{path}' must be a mapping")
    for name in given:
        if name not in _OF_SERVER:
            nearest = suggestion(str(name), _OF_SERVER)
            raise ModelLoadError(f"unknown key '{name}' under '{_SERVER}' in '{path}'{nearest}")
    return _set(given)


def _number(server: Mapping[str, Any], name: str, path: Path) -> float:
    """A number of 0 or more, 0 where it is not set; raises `ModelLoadError`."""
    given = server.get(name) or 0
    try:
        number = -1.0 if given is True else float(given)
    except (TypeError, ValueError):
        number = -1.0
    if not 0.0 <= number < inf:
        raise ModelLoadError(
            f"'{name}' under '{_SERVER}' in '{path}' must be a number of 0 or more, not {given}"
        )
    return number


def _read_openai(given: Any, path: Path) -> dict[str, Any] | None:
    """The object `openai` of the settings; `None` for `false`. Raises `ModelLoadError`."""
    if given is False:
        return None
    if given is None or given is True:
        return {}
    known = ("tool_call_parser", TEMPLATE)
    if not isinstance(given, Mapping):
        raise ModelLoadError(f"'openai' in '{path}' must be a mapping, or false")
    for name, value in given.items():
        if name not in known:
            nearest = suggestion(str(name), known)
            raise ModelLoadError(f"unknown argument '{name}' in 'openai' of '{path}'{nearest}")
        if not isinstance(value, str):
            raise ModelLoadError(f"'{name}' in 'openai' of '{path}' must be a text")
    values = dict(given)
    template = values.get(TEMPLATE, "")
    if template.endswith(".jinja") and (path.parent / template).is_file():
        values[TEMPLATE] = str(path.parent / template)
    return values


def _parsed(path: Path) -> dict[str, Any]:
    text = path.read_text(encoding="utf-8", errors="replace")  # comments are in any encoding
    if path.suffix == ".json":
        try:
            values = json.loads(text)
        except ValueError as error:
            raise ModelLoadError(f"'{path}' is not JSON: {error}") from error
    else:
        values = _yaml(text, path)
    if not isinstance(values, dict):
        raise ModelLoadError(f"'{path}' must hold a mapping of names and values")
    return values


def _yaml(text: str, path: Path) -> Any:
    try:
        import yaml
    except ImportError as error:
        raise BackendNotInstalledError(
            f"'{path}' needs PyYAML: pip install 'penstock[trtllm]', or write it as model.json"
        ) from error
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ModelLoadError(f"Failed to parse YAML engine config: {error}") from error


def _set(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values that are set: a template may have left variables in the file."""
    return {
        name: value
        for name, value in values.items()
        if not (isinstance(value, str) and is_unset(value))
    }


def _flag(value: Any) -> bool:
    return as_bool(value) if isinstance(value, str) else bool(value)
