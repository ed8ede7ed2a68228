"""`EngineSettings`: parser of `model.json` in a version directory, with its defaults."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from penstock.backend import ModelConfig, ModelLoadError, share_of_cores, sharers, suggestion
from penstock_backends.openai_kit.settings import OpenAiSettings, read_openai_settings
from penstock_backends.openvino_genai import gguf
from penstock_backends.openvino_genai.model_files import find_model, find_tokenizer

FILE = "model.json"
BLOCK_TOKENS = 32
"""Tokens per block of KV cache on a CPU."""

_CONTEXT_OF_UNKNOWN = 2048
_BLOCKS = 2048
_THREADS = "INFERENCE_NUM_THREADS"


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """The settings of one engine; paths are absolute.

    `top_k_cap` bounds the candidates of requests that set `top_p` without `top_k`, for which the
    engine would sort the whole vocabulary at every token; 0 leaves them unbounded.
    """

    model: Path
    tokenizer: Path
    max_model_len: int
    num_kv_blocks: int
    vocabulary: int | None = None
    max_num_seqs: int = 128
    max_num_batched_tokens: int = 2048
    max_num_waiting: int = 1024
    enable_prefix_caching: bool = True
    top_k_cap: int = 200
    properties: Mapping[str, Any] = field(default_factory=dict)
    openai: OpenAiSettings = field(default_factory=OpenAiSettings)

    @property
    def cache_config(self) -> Mapping[str, str]:
        """The KV cache, under vLLM's names."""
        return {"block_size": str(BLOCK_TOKENS), "num_gpu_blocks": str(self.num_kv_blocks)}


def read_settings(version_path: Path) -> EngineSettings:
    """Read a version directory; raises `ModelLoadError` that names file and key."""
    given = _read(version_path / FILE)
    model = find_model(version_path, given.pop("model", None))
    tokenizer = find_tokenizer(version_path, given.pop("tokenizer", None), model)
    context, vocabulary = _facts(model)
    length = given.setdefault("max_model_len", context or _CONTEXT_OF_UNKNOWN)
    if context is not None and length > context:
        raise ModelLoadError(
            f"'max_model_len' is {length} in '{version_path / FILE}', but the model was made for "
            f"{context} tokens"
        )
    given.setdefault("num_kv_blocks", max(_BLOCKS, -(-length // BLOCK_TOKENS)))
    given["openai"] = _openai_settings(version_path, given.get("openai"))
    return EngineSettings(model=model, tokenizer=tokenizer, vocabulary=vocabulary, **given)


def _openai_settings(version_path: Path, given: Any) -> OpenAiSettings:
    """The object `openai`; a chat template that is a file is read."""
    settings = read_openai_settings(given)
    template = settings.chat_template
    if template is None or "{" in template:
        return settings
    if not (version_path / template).is_file():
        raise ModelLoadError(f"no chat template at '{version_path / template}'")
    return replace(settings, chat_template=(version_path / template).read_text("utf-8", "replace"))


def sharing_cores(settings: EngineSettings, config: ModelConfig, policy: str) -> EngineSettings:
    """Settings with this instance's share of the cores as threads; a single one has them all."""
    if sharers(config, policy) == 1:
        return settings
    threads = {_THREADS: share_of_cores(config, policy)}
    return replace(settings, properties={**threads, **settings.properties})


def _read(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        given = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ModelLoadError(f"'{path}' is not JSON: {error}") from error
    if not isinstance(given, dict):
        raise ModelLoadError(f"'{path}' must hold a JSON object")
    for key, value in given.items():
        _check(path, key, value)
    return {key: value for key, value in given.items() if value is not None}


def _check(path: Path, key: str, value: Any) -> None:
    if key not in _RULES:
        raise ModelLoadError(
            f"unknown key '{key}' in '{path}'; known are {', '.join(_RULES)}"
            f"{suggestion(key, _RULES)}"
        )
    rule, wanted = _RULES[key]
    if value is not None and not rule(value):
        raise ModelLoadError(f"key '{key}' in '{path}' must be {wanted}, not {json.dumps(value)}")


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and value != ""


def _integer_from(low: int) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, int) and not isinstance(value, bool) and value >= low


_POSITIVE = (_integer_from(1), "a positive integer")
_COUNT = (_integer_from(0), "an integer of 0 or more")
_RULES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "model": (_is_text, "a path"),
    "tokenizer": (_is_text, "a path"),
    "max_model_len": _POSITIVE,
    "num_kv_blocks": _POSITIVE,
    "max_num_seqs": _POSITIVE,
    "max_num_batched_tokens": _POSITIVE,
    "max_num_waiting": _COUNT,
    "enable_prefix_caching": (lambda value: isinstance(value, bool), "true or false"),
    "top_k_cap": _COUNT,
    "properties": (lambda value: isinstance(value, dict), "an object"),
    "openai": (lambda value: isinstance(value, dict), "an object"),
}
assert set(_RULES) == {f.name for f in fields(EngineSettings)} - {"vocabulary"}


def _facts(model: Path) -> tuple[int | None, int | None]:
    """Context length and vocabulary size from the model's own files."""
    try:
        if model.is_file():
            metadata = gguf.read_metadata(model)
            return gguf.context_length(metadata), gguf.vocabulary_size(metadata)
        config = json.loads((model / "config.json").read_text(encoding="utf-8"))
        return _size(config, "max_position_embeddings"), _size(config, "vocab_size")
    except FileNotFoundError:
        return None, None
    except (ValueError, OSError) as error:
        raise ModelLoadError(f"cannot read '{model}': {error}") from error


def _size(config: Any, name: str) -> int | None:
    """A size in a model's `config.json`, which may leave it out; raises `ValueError`."""
    if not isinstance(config, dict):
        raise ValueError("config.json must hold an object")
    size = config.get(name)
    if size is not None and not _integer_from(1)(size):
        raise ValueError(f"'{name}' in config.json must be a positive integer, not {size!r}")
    return size
