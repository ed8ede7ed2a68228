"""What `model.json` says of an engine's memory, by each engine's names; and sizes as text."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.models.sizing.kv_cache import EngineSettings, width_of
from penstock.models.sizing.sizes import parsed_size, shown_size


@pytest.mark.parametrize(
    ("values", "settings"),
    [
        ({}, EngineSettings()),
        ({"max_model_len": 7}, EngineSettings(length=7)),
        ({"max_seq_len": 7}, EngineSettings(length=7)),
        ({"max_model_len": -1, "max_seq_len": 5}, EngineSettings(length=5)),
        ({"max_num_seqs": 7}, EngineSettings(sequences=7)),
        ({"max_batch_size": "7"}, EngineSettings(sequences=7)),
        ({"max_num_batched_tokens": 7}, EngineSettings(batched=7)),
        ({"max_num_tokens": 7}, EngineSettings(batched=7)),
        ({"num_kv_blocks": 3}, EngineSettings(tokens=3 * 32)),
        ({"num_gpu_blocks_override": 3}, EngineSettings(tokens=3 * 16)),
        ({"num_gpu_blocks_override": 3, "block_size": 8}, EngineSettings(tokens=24)),
        ({"kv_cache_config": {"max_tokens": 9}}, EngineSettings(tokens=9)),
        (
            {"num_kv_blocks": 1, "kv_cache_config": {"max_tokens": 9}},
            EngineSettings(tokens=32),
        ),
        ({"kv_cache_memory_bytes": 9}, EngineSettings(bytes=9)),
        ({"gpu_memory_utilization": 0.5}, EngineSettings(fraction=0.5)),
        ({"gpu_memory_utilization": 1}, EngineSettings(fraction=1.0)),
        ({"gpu_memory_utilization": "0.25"}, EngineSettings(fraction=0.25)),
        ({"gpu_memory_utilization": 0}, EngineSettings()),
        ({"gpu_memory_utilization": 1.01}, EngineSettings()),
        ({"gpu_memory_utilization": "half"}, EngineSettings()),
        ({"kv_cache_config": {"free_gpu_memory_fraction": 0.5}}, EngineSettings(fraction=0.5)),
        ({"kv_cache_dtype": "fp8"}, EngineSettings(dtype="fp8")),
        ({"kv_cache_config": {"dtype": "fp8"}}, EngineSettings(dtype="fp8")),
        ({"properties": {"KV_CACHE_PRECISION": "u8"}}, EngineSettings(dtype="u8")),
        ({"tensor_parallel_size": 2, "pipeline_parallel_size": 3}, EngineSettings(parallel=6)),
        ({"kv_cache_config": [1]}, EngineSettings()),
    ],
)
def test_settings_are_read_by_each_engine_s_names(
    values: dict[str, Any], settings: EngineSettings
) -> None:
    assert EngineSettings.of(values) == settings


@pytest.mark.parametrize("value", [True, 1.5, -1, "-1", "x", [1], 1 << 63])
def test_what_is_no_number_of_tokens_is_named(value: Any) -> None:
    with pytest.raises(ValueError, match=r"^'max_num_seqs' is no number of tokens or widths: "):
        EngineSettings.of({"max_num_seqs": value})


def test_a_data_type_that_is_not_known_is_taken_for_one_of_16_bits() -> None:
    assert [width_of(each) for each in ("float32", "torch.bfloat16", "FP8", "odd")] == [4, 2, 1, 2]


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1", 1),
        ("7 B", 7),
        ("2kB", 2000),
        ("2 KiB", 2048),
        ("1.5MB", 1_500_000),
        ("1MiB", 1 << 20),
        ("80GB", 80 * 10**9),
        ("48 gib", 48 << 30),
        ("1TB", 10**12),
        ("1TiB", 1 << 40),
        ("0.5", None),
        ("0", None),
        ("9" * 18 + "TiB", None),
        ("1 PB", None),
        ("1  GB", None),
        ("-1", None),
        ("1.", None),
        ("", None),
    ],
)
def test_a_size_is_bytes_or_a_number_with_a_unit(text: str, size: int | None) -> None:
    assert parsed_size(text) == (size if text != "0.5" else 0)


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.00 KiB"),
        ((10 << 10) - 6, "9.99 KiB"),
        (10 << 10, "10.0 KiB"),
        (100 << 10, "100 KiB"),
        ((1 << 20) - 1, "1024 KiB"),
        (1 << 20, "1.00 MiB"),
        (1 << 30, "1.00 GiB"),
        (5000 << 30, "5000 GiB"),
    ],
)
def test_a_size_for_people_has_three_digits_and_a_unit(size: int, text: str) -> None:
    assert shown_size(size) == text
