"""The header of a GGUF file."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.demo.gguf import Value, write_gguf
from penstock_backends.openvino_genai.gguf import (
    context_length,
    read_metadata,
    vocabulary_size,
)

METADATA: dict[str, Value] = {
    "general.architecture": "qwen3",
    "general.name": "größe",
    "tokenizer.ggml.tokens": ["a", "bc", ""],
    "tokenizer.ggml.token_type": [1, 1, 3],
    "qwen3.rope.freq_base": 1.5,
    "tokenizer.ggml.add_bos_token": True,
    "qwen3.context_length": 32768,
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    write_gguf(tmp_path / "model.gguf", METADATA, {})
    return tmp_path / "model.gguf"


def test_scalars_are_read_and_arrays_counted(file: Path) -> None:
    lengths = {"tokenizer.ggml.tokens": 3, "tokenizer.ggml.token_type": 3}
    assert read_metadata(file) == METADATA | lengths


def test_the_facts_that_matter(file: Path) -> None:
    metadata = read_metadata(file)
    assert (context_length(metadata), vocabulary_size(metadata)) == (32768, 3)


def test_a_file_may_keep_them_to_itself() -> None:
    assert (context_length({}), vocabulary_size({})) == (None, None)


def test_a_file_that_ends_within_its_tensors_is_refused(tmp_path: Path) -> None:
    """The engine itself would crash, and its process with it."""
    path = tmp_path / "model.gguf"
    tensors: dict[str, Any] = {"a": np.zeros((4, 8), np.float32), "b": np.zeros((3, 5), np.float16)}
    write_gguf(path, METADATA, tensors)
    read_metadata(path)
    path.write_bytes(path.read_bytes()[: -32 - 1])
    with pytest.raises(ValueError, match="GGUF file is cut short"):
        read_metadata(path)


@given(cut=st.integers(0, 400))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_a_file_that_is_cut_short_is_refused(file: Path, cut: int) -> None:
    short = file.with_name("short.gguf")
    short.write_bytes(file.read_bytes()[: min(cut, 250)])
    with pytest.raises(ValueError, match="GGUF"):
        read_metadata(short)


@given(changes=st.lists(st.tuples(st.integers(4, 249), st.integers(0, 255)), min_size=1))
@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None
)
def test_a_file_that_is_damaged_is_read_or_refused(
    file: Path, changes: list[tuple[int, int]]
) -> None:
    content = bytearray(file.read_bytes())
    for at, value in changes:
        content[at] = value
    damaged = file.with_name("damaged.gguf")
    damaged.write_bytes(content)
    with suppress(ValueError):
        read_metadata(damaged)
