"""A model repository with one random language model, for an engine."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from loadtest.random_llms import RandomLlm
from penstock.models.config.own_parameters import READERS

INTERVAL = "penstock.stream_interval_ms"
_GENAI = {
    "model": "model.gguf",
    "tokenizer": "tokenizer.json",
    "max_model_len": 1024,
    "num_kv_blocks": 1100,  # 32 streams of 1,024 tokens, and some to spare
    "max_num_seqs": 64,
    "max_num_batched_tokens": 1024,
    "enable_prefix_caching": True,
    "properties": {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32"},
}
_VLLM = {
    "model": "model",
    "dtype": "float32",
    "enforce_eager": True,
    "gpu_memory_utilization": 0.3,
    "max_model_len": 1024,
    "max_num_seqs": 64,
}


def known_intervals(intervals: list[str]) -> list[str]:
    """Those of these that the server has a parameter for; one that is empty where it has none."""
    return intervals if INTERVAL in READERS else [""]


def model_name(llm: RandomLlm, interval: str) -> str:
    """The name of the model that has this interval between its responses."""
    return f"llm-{llm.name}-{interval}" if interval else f"llm-{llm.name}"


def write_llm(
    repository: Path,
    llm: RandomLlm,
    engine: str,
    interval: str = "",
    *,
    parameters: Mapping[str, str] = MappingProxyType({}),
    settings: Mapping[str, object] = MappingProxyType({}),
) -> Path:
    """Write the model for one engine; its version directory.

    `parameters` are further ones of the model, `settings` of the engine.
    """
    model = repository / model_name(llm, interval)
    version = model / "1"
    version.mkdir(parents=True)
    config = f'backend: "{engine}"\n'
    parameters = {**({INTERVAL: interval} if interval else {}), **parameters}
    for key, value in parameters.items():
        config += f'parameters {{ key: "{key}" value: {{ string_value: "{value}" }} }}\n'
    (model / "config.pbtxt").write_text(config)
    written: dict[str, Any] = {**(_VLLM if engine == "vllm" else _GENAI), **settings}
    if engine == "vllm":
        (version / "model").symlink_to(llm.checkpoint())
    else:
        for file in llm.gguf().iterdir():
            (version / file.name).symlink_to(file)
    (version / "model.json").write_text(json.dumps(written))
    return version


def serve_arguments(version: Path) -> list[str]:
    """The options of `vllm serve` that say what the model's `model.json` says."""
    settings = json.loads((version / "model.json").read_text())
    arguments = [str(version / settings.pop("model"))]
    for key, value in settings.items():
        flag = "--" + key.replace("_", "-")
        arguments += [flag] if value is True else [flag, str(value)]
    return arguments
