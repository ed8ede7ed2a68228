"""KV cache of language models: what a token takes, and how many tokens an engine makes room for."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.core.errors import ModelLoadError
from penstock.models.sizing.headers.gguf import read_gguf

_MOST_CONFIG = 16 << 20
_MOST_LAYERS = 4096
_LARGEST = 1 << 32
_OPENVINO_BLOCK, _VLLM_BLOCK = 32, 16
"""Tokens of a block of cache."""

_SCALES = 8
"""Bytes beside each vector that OpenVINO keeps in eight bits: its scale and its zero."""

_WIDTHS = (
    (r"u8|i8|int8|uint8|fp8.*|f8.*", 1.0),
    (r"u4|i4|int4|uint4|fp4|nvfp4|f4.*", 0.5),
    (r"f32|fp32|float32|float|single", 4.0),
    (r"f16|fp16|float16|half|bf16|bfloat16", 2.0),
)
"""Bytes of a number, by the names that engines have for data types."""


@dataclass(frozen=True, slots=True)
class Attention:
    """The attention of a language model, as far as memory goes.

    A token leaves `numbers` in the cache, and `windowed` further ones in layers that only see the
    last `window` tokens; `vectors` they belong to, of `heads` heads a layer. `hidden`,
    `intermediate` and `vocabulary` are widths, 0 where they are not said.
    """

    numbers: int
    vectors: int
    heads: int
    dtype: str = "float16"
    context: int = 0
    windowed: int = 0
    window: int = 0
    hidden: int = 0
    intermediate: int = 0
    vocabulary: int = 0

    def cache(self, length: int, sequences: int, dtype: str, *, scales: bool = False) -> int:
        """Bytes of cache for so many sequences of so many tokens; `auto` is the model's type."""
        width = width_of(self.dtype if dtype == "auto" else dtype)
        token = self.numbers * width + (self.vectors * _SCALES if scales and width <= 1 else 0)
        near = min(length, self.window) * self.windowed * width
        return int((length * token + near) * sequences)


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """What `model.json` says of an engine's memory; `None` or 0 where it says nothing.

    `length` and `sequences` are tokens of the longest sequence and sequences at once. `tokens` or
    `bytes` say the cache's size itself, `fraction` how much of a card the engine takes altogether.
    """

    length: int = 0
    sequences: int = 0
    batched: int = 0
    tokens: int = 0
    bytes: int = 0
    fraction: float | None = None
    dtype: str = ""
    parallel: int = 1

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> EngineSettings:
        """Read the arguments of OpenVINO GenAI, vLLM or TensorRT-LLM: their names differ."""
        cache = _object(values.get("kv_cache_config"))
        properties = _object(values.get("properties"))
        block = _whole(values, ("block_size",)) or _VLLM_BLOCK
        tokens = _whole(values, ("num_kv_blocks",)) * _OPENVINO_BLOCK
        tokens = tokens or _whole(values, ("num_gpu_blocks_override",)) * block
        parallel = _whole(values, ("tensor_parallel_size",)) or 1
        if (
            values.get("max_model_len") == -1
        ):  # vLLM: as long as there is room for, up to the model's
            values = {**values, "max_model_len": None}
        return cls(
            length=_whole(values, ("max_model_len", "max_seq_len")),
            sequences=_whole(values, ("max_num_seqs", "max_batch_size")),
            batched=_whole(values, ("max_num_batched_tokens", "max_num_tokens")),
            tokens=tokens or _whole(cache, ("max_tokens",)),
            bytes=_whole(values, ("kv_cache_memory_bytes",)),
            fraction=_fraction(
                values.get("gpu_memory_utilization", cache.get("free_gpu_memory_fraction"))
            ),
            dtype=str(
                values.get("kv_cache_dtype")
                or cache.get("dtype")
                or properties.get("KV_CACHE_PRECISION")
                or ""
            ),
            parallel=parallel * (_whole(values, ("pipeline_parallel_size",)) or 1),
        )


def width_of(dtype: str) -> float:
    """Bytes of a number of this data type; 2 for a name that is not known."""
    return known_width(dtype) or 2.0


def known_width(dtype: str) -> float | None:
    """Bytes of a number of this data type; `None` for a name that is not known."""
    name = dtype.lower().removeprefix("torch.")
    return next((width for names, width in _WIDTHS if re.fullmatch(names, name)), None)


def read_attention(model: Path) -> Attention | None:
    """The attention of a GGUF file, or of a folder with a `config.json`; `None` without any.

    Raises `ModelLoadError`.
    """
    config = (model if model.is_dir() else model.parent) / "config.json"
    found = sorted(model.glob("*.gguf")) if model.is_dir() else [model]
    path = found[0] if found and found[0].suffix == ".gguf" else config
    if not path.is_file():
        return None
    try:
        if path is config:
            return _of_config(read_json(path))
        return _of_gguf(read_gguf(path).metadata)
    except ValueError as error:
        raise ModelLoadError(f"'{path}': {error}") from error


def read_json(path: Path) -> Mapping[str, Any]:
    """The object in a small JSON file. Raises `ModelLoadError`."""
    try:
        if path.stat().st_size > _MOST_CONFIG:
            raise ModelLoadError(f"'{path}' is longer than any configuration")
        found = json.loads(path.read_bytes())
    except (ValueError, RecursionError, OSError) as error:
        raise ModelLoadError(f"'{path}' is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise ModelLoadError(f"'{path}' must hold a JSON object")
    return found


def _of_config(config: Mapping[str, Any]) -> Attention | None:
    """By a `config.json` of transformers, or that of an engine of TensorRT-LLM."""
    for part in ("text_config", "llm_config", "pretrained_config"):
        config = {**config, **_object(config.get(part))}
    layers = _whole(config, ("num_hidden_layers", "n_layer", "num_layers", "n_layers"))
    heads = _whole(config, ("num_attention_heads", "n_head", "n_heads"))
    return _attention(config, layers, heads) if layers and heads else None


def _attention(config: Mapping[str, Any], layers: int, heads: int) -> Attention:
    hidden = _whole(config, ("hidden_size", "n_embd", "d_model"))
    shared = 1 if config.get("multi_query") is True else heads
    kv_heads = _whole(config, ("num_key_value_heads", "n_head_kv", "num_kv_heads")) or shared
    width = _whole(config, ("head_dim", "head_size")) or hidden // heads
    layer, vectors = 2 * kv_heads * width, 2 * kv_heads
    if latent := _whole(config, ("kv_lora_rank",)):  # one vector for all heads
        layer, vectors = latent + _whole(config, ("qk_rope_head_dim",)), 1
    kinds = config.get("layer_types")
    kinds = list(map(str, kinds)) if isinstance(kinds, list) and len(kinds) == layers else []
    window = _whole(config, ("sliding_window",))
    near = sum("sliding" in kind for kind in kinds) if window else 0
    full = layers - near - sum("attention" not in kind or "linear" in kind for kind in kinds)
    return Attention(
        numbers=full * layer,
        vectors=full * vectors,
        heads=kv_heads if not latent else 1,
        dtype=str(config.get("dtype") or config.get("torch_dtype") or "float16"),
        context=_whole(config, ("max_position_embeddings", "n_positions", "max_seq_len")),
        windowed=near * layer,
        window=window,
        hidden=hidden,
        intermediate=_whole(config, ("intermediate_size", "n_inner", "ffn_hidden_size")),
        vocabulary=_whole(config, ("vocab_size",)),
    )


def _of_gguf(metadata: Mapping[str, Any]) -> Attention | None:
    own = f"{metadata.get('general.architecture')}."
    given = {key.removeprefix(own): value for key, value in metadata.items()}
    layers, hidden = _whole(given, ("block_count",)), _whole(given, ("embedding_length",))
    layers = min(layers, _MOST_LAYERS)
    heads = _per_layer(given, "attention.head_count", layers)
    kv_heads = _per_layer(given, "attention.head_count_kv", layers) or heads
    if not max(heads, default=0):
        return None
    width = hidden // max(heads)
    key = _whole(given, ("attention.key_length",)) or width
    value = _whole(given, ("attention.value_length",)) or width
    tokens = metadata.get("tokenizer.ggml.tokens")
    return Attention(
        numbers=sum(kv_heads) * (key + value),
        vectors=sum(kv_heads) * 2,
        heads=max(kv_heads, default=1),
        context=_whole(given, ("context_length",)),
        hidden=hidden,
        intermediate=_whole(given, ("feed_forward_length",)),
        vocabulary=tokens if isinstance(tokens, int) else _whole(given, ("vocab_size",)),
    )


def _per_layer(given: Mapping[str, Any], name: str, layers: int) -> tuple[int, ...]:
    """Numbers of heads, one for each layer; empty where they are not said."""
    value = given.get(name)
    if isinstance(value, tuple):
        return value
    return (_whole(given, (name,)),) * layers if value else ()


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _whole(values: Mapping[str, Any], names: Iterable[str]) -> int:
    """The first of these entries that is there; 0 without any. Raises `ValueError`."""
    for name in names:
        value = values.get(name)
        if isinstance(value, str) and value.isascii() and value.isdecimal():
            value = int(value)
        if value is None or isinstance(value, tuple):
            continue
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < _LARGEST:
            raise ValueError(f"'{name}' is no number of tokens or widths: {str(value)[:80]!r}")
        return value
    return 0


def _fraction(value: Any) -> float | None:
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return None
    return float(value) if isinstance(value, int | float) and 0 < value <= 1 else None
