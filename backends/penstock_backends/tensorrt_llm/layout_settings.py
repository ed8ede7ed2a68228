"""Settings of the model `tensorrt_llm` of the five-model layout, from its parameters (TL-34)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from penstock.backend import ModelConfig, ModelLoadError
from penstock_backends.tensorrt_llm.parameter_text import as_bool, is_unset, read_parameter
from penstock_backends.tensorrt_llm.plan_files import refuse_plans
from penstock_backends.tensorrt_llm.settings import EngineSettings, read_settings, settings_path

logger = logging.getLogger(__name__)


def _windows(text: str) -> list[int]:
    """The window of each layer, separated by commas."""
    return [int(one) for one in text.split(",")]


_MODEL: Final = ("gpt_model_path", "engine_dir")
_ARGUMENTS: Final[dict[str, tuple[str, Callable[[str], Any]]]] = {
    "max_beam_width": ("max_beam_width", int),
    "enable_chunked_context": ("enable_chunked_prefill", as_bool),
    "guided_decoding_backend": ("guided_decoding_backend", str),
    "tokenizer_dir": ("tokenizer", str),
    "iter_stats_max_iterations": ("iter_stats_max_iterations", int),
    "request_stats_max_iterations": ("request_stats_max_iterations", int),
}
_CACHE: Final[dict[str, tuple[str, Callable[[str], Any]]]] = {
    "max_tokens_in_paged_kv_cache": ("max_tokens", int),
    "kv_cache_free_gpu_mem_fraction": ("free_gpu_memory_fraction", float),
    "kv_cache_host_memory_bytes": ("host_cache_size", int),
    "enable_kv_cache_reuse": ("enable_block_reuse", as_bool),
    "max_attention_window_size": ("max_attention_window", _windows),
    "sink_token_length": ("sink_token_length", int),
}
_POLICY: Final = "batch_scheduler_policy"
_BATCHING: Final = "gpt_model_type"
_ELSEWHERE: Final = ("gpu_device_ids", "exclude_input_in_output")
_OURS: Final = "penstock."
_IN_FLIGHT: Final = ("inflight_fused_batching", "inflight_batching")


def read_layout_settings(config: ModelConfig, version_path: Path) -> EngineSettings:
    """`model.yaml` if there is one, and the parameters for what it does not say."""
    _check_batching(config)
    try:
        settings_path(version_path)
    except ModelLoadError:
        settings = _of_folder(config, version_path)
    else:
        settings = read_settings(version_path)
    values = settings.values
    for name, (argument, kind) in _ARGUMENTS.items():
        _take(values, argument, read_parameter(config, name, kind))
    cache = dict(values.get("kv_cache_config") or {})
    for name, (argument, kind) in _CACHE.items():
        _take(cache, argument, read_parameter(config, name, kind))
    if cache:
        values["kv_cache_config"] = cache
    if (policy := read_parameter(config, _POLICY, str)) is not None:
        scheduler = {"capacity_scheduler_policy": policy.upper()}
        values["scheduler_config"] = scheduler | dict(values.get("scheduler_config") or {})
    if settings.is_engine and "tokenizer" not in values:
        values.setdefault("skip_tokenizer_init", True)
    return settings


def name_ineffective(config: ModelConfig) -> None:
    """Log the parameters of the removed backend that are set and change nothing here."""
    used = {*_MODEL, *_ARGUMENTS, *_CACHE, _POLICY, _BATCHING, *_ELSEWHERE}
    ineffective = [
        name
        for name, parameter in config.parameters.items()
        if name not in used and not name.startswith(_OURS) and not is_unset(parameter.string_value)
    ]
    if ineffective:
        logger.warning(
            "parameters of '%s' that have no effect here: %s",
            config.name,
            ", ".join(sorted(ineffective)),
        )


def _check_batching(config: ModelConfig) -> None:
    batching = read_parameter(config, _BATCHING, str)
    if batching is not None and batching.lower() not in _IN_FLIGHT:
        raise ModelLoadError(
            f"parameter '{_BATCHING}' must be '{_IN_FLIGHT[0]}', not '{batching}': "
            "TensorRT-LLM always batches in flight"
        )


def _of_folder(config: ModelConfig, version_path: Path) -> EngineSettings:
    """The settings of a model whose parameters say where its engine, or checkpoint, is."""
    for name in _MODEL:
        if (folder := read_parameter(config, name, str)) is not None:
            inside = version_path / folder
            model = str(inside) if inside.exists() else folder
            refuse_plans(Path(model))
            return EngineSettings({"model": model}, version_path.parent / "config.pbtxt")
    refuse_plans(version_path)
    raise ModelLoadError(
        f"'model.yaml' containing TRT-LLM engine args not found in '{version_path}', "
        f"and no parameter '{_MODEL[0]}'"
    )


def _take(values: dict[str, Any], name: str, value: Any) -> None:
    if value is not None:
        values.setdefault(name, value)
