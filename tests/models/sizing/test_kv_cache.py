"""KV cache: bytes of a token by configurations as they are published, and engines' settings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from models.sizing.headers.files import gguf, gguf_entry, written
from penstock.core.errors import ModelLoadError
from penstock.models.sizing.kv_cache import (
    Attention,
    EngineSettings,
    read_attention,
    width_of,
)

_LLAMA_8B = {
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "hidden_size": 4096,
    "max_position_embeddings": 131072,
    "torch_dtype": "bfloat16",
}


def _read(folder: Path, config: Any) -> Attention | None:
    (folder / "config.json").write_text(json.dumps(config))
    return read_attention(folder)


@pytest.mark.parametrize(
    ("config", "bytes_of_a_token"),
    [
        (_LLAMA_8B, 131072),
        ({**_LLAMA_8B, "head_dim": 64}, 65536),
        ({"n_layer": 12, "n_head": 12, "n_embd": 768}, 2 * 12 * 768 * 2),
        ({"n_layer": 2, "n_head": 8, "n_embd": 64, "multi_query": True}, 2 * 2 * 8 * 2),
        ({"text_config": _LLAMA_8B, "hidden_size": 1}, 131072),
        (
            {**_LLAMA_8B, "kv_lora_rank": 512, "qk_rope_head_dim": 64},
            32 * 576 * 2,
        ),
        ({"pretrained_config": {**_LLAMA_8B, "head_size": 32}}, 32768),
    ],
)
def test_a_token_takes_keys_and_values_of_each_layer(
    tmp_path: Path, config: Any, bytes_of_a_token: int
) -> None:
    attention = _read(tmp_path, config)
    assert attention is not None
    assert attention.cache(1, 1, "auto") == bytes_of_a_token
    assert attention.cache(10, 3, "fp8") == bytes_of_a_token * 30 // 2


def test_layers_with_a_window_keep_its_tokens_alone(tmp_path: Path) -> None:
    kinds = ["sliding_attention", "full_attention", "linear_attention", "mamba"]
    config = {**_LLAMA_8B, "num_hidden_layers": 4, "layer_types": kinds, "sliding_window": 100}
    attention = _read(tmp_path, config)
    assert attention is not None
    layer = 2 * 8 * 128 * 2
    assert attention.cache(1000, 2, "auto") == (1000 + 100) * layer * 2


def test_eight_bits_of_openvino_have_a_scale_beside_each_vector(tmp_path: Path) -> None:
    attention = _read(tmp_path, _LLAMA_8B)
    assert attention is not None
    assert attention.cache(1, 1, "u8", scales=True) == 32 * 2 * 8 * (128 + 8)


def test_a_gguf_file_says_it_by_its_own_keys(tmp_path: Path) -> None:
    entries = [
        gguf_entry("general.architecture", "llama"),
        gguf_entry("llama.block_count", 2),
        gguf_entry("llama.embedding_length", 64),
        gguf_entry("llama.attention.head_count", 4),
        gguf_entry("llama.attention.head_count_kv", [4, 2]),
        gguf_entry("llama.context_length", 512),
    ]
    path = written(tmp_path / "m.gguf", gguf({}, b"".join(entries), len(entries)))
    attention = read_attention(path)
    assert attention is not None
    assert attention.cache(1, 1, "f16") == (4 + 2) * 32 * 2
    assert attention.context == 512
    assert read_attention(tmp_path) == attention


@pytest.mark.parametrize("config", [{}, {"num_hidden_layers": 3}, {"model_type": "clip"}])
def test_what_is_no_language_model_has_none(tmp_path: Path, config: Any) -> None:
    assert _read(tmp_path, config) is None
    assert read_attention(tmp_path / "gone") is None


@pytest.mark.parametrize(
    "config",
    [
        [],
        {**_LLAMA_8B, "num_hidden_layers": -1},
        {**_LLAMA_8B, "head_dim": 10**30},
        {**_LLAMA_8B, "hidden_size": "wide"},
        {**_LLAMA_8B, "num_key_value_heads": True},
    ],
)
def test_a_configuration_that_cannot_be_is_one_error(tmp_path: Path, config: Any) -> None:
    with pytest.raises(ModelLoadError, match=r"config\.json"):
        _read(tmp_path, config)


def test_engines_say_the_same_by_other_names() -> None:
    vllm = {"max_model_len": 4096, "max_num_seqs": 8, "gpu_memory_utilization": 0.5}
    assert EngineSettings.of(vllm) == EngineSettings(length=4096, sequences=8, fraction=0.5)
    trtllm = {
        "max_seq_len": 4096,
        "max_batch_size": 8,
        "kv_cache_config": {"free_gpu_memory_fraction": 0.5, "dtype": "fp8"},
    }
    found = EngineSettings.of(trtllm)
    assert found == EngineSettings(length=4096, sequences=8, fraction=0.5, dtype="fp8")
    genai = {"num_kv_blocks": 512, "properties": {"KV_CACHE_PRECISION": "f32"}}
    assert EngineSettings.of(genai) == EngineSettings(tokens=16384, dtype="f32")
    split = {"tensor_parallel_size": 4, "pipeline_parallel_size": 2, "max_num_seqs": "16"}
    assert EngineSettings.of(split) == EngineSettings(parallel=8, sequences=16)
    given = {"num_gpu_blocks_override": 10, "block_size": 32, "kv_cache_memory_bytes": 7}
    assert EngineSettings.of(given) == EngineSettings(tokens=320, bytes=7)


@pytest.mark.parametrize("fraction", ["much", 0, 2, None, [0.5]])
def test_a_fraction_that_is_none_is_not_taken(fraction: Any) -> None:
    assert EngineSettings.of({"gpu_memory_utilization": fraction}).fraction is None


def test_widths_of_data_types() -> None:
    names = ["float32", "torch.bfloat16", "f16", "fp8_e4m3", "u8", "nvfp4", "unheard of"]
    assert [width_of(name) for name in names] == [4, 2, 2, 1, 1, 0.5, 2]
