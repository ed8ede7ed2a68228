"""Headers of GGUF files."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from models.sizing.headers.files import gguf, gguf_entry, written
from penstock.core.errors import ModelLoadError
from penstock.models.sizing.headers.gguf import read_gguf

FP32, FP16, Q4_0 = 0, 1, 2


def test_bytes_are_added_up_by_data_type(tmp_path: Path) -> None:
    tensors = {"a": (FP32, [4], 16), "b": (FP16, [2, 3], 12), "c": (Q4_0, [32, 2], 36)}
    header = read_gguf(written(tmp_path / "m.gguf", gguf(tensors)))
    assert header.weights == {"FP32": 16, "FP16": 12, "Q4_0": 36}


def test_metadata_have_numbers_of_layers_and_lengths_of_long_arrays(tmp_path: Path) -> None:
    entries = [
        gguf_entry("general.architecture", "llama"),
        gguf_entry("llama.block_count", 2),
        gguf_entry("llama.attention.head_count_kv", [4, 2]),
        gguf_entry("tokens", range(5000)),
    ]
    path = written(tmp_path / "m.gguf", gguf({}, b"".join(entries), len(entries)))
    assert read_gguf(path).metadata == {
        "general.architecture": "llama",
        "llama.block_count": 2,
        "llama.attention.head_count_kv": (4, 2),
        "tokens": 5000,
    }


def test_of_arrays_only_those_that_are_needed_are_kept(tmp_path: Path) -> None:
    """A file of 64 MiB may have 8,000 arrays of 4,096 numbers."""
    entries = [gguf_entry("x.rope.sections", [1, 2, 3])]
    entries += [gguf_entry(f"{at}.attention.head_count", [1, 2]) for at in range(20)]
    path = written(tmp_path / "m.gguf", gguf({}, b"".join(entries), len(entries)))
    values = list(read_gguf(path).metadata.values())
    assert values[0] == 3
    assert values[1:] == [(1, 2)] * 8 + [2] * 12


def test_it_reads_what_the_demo_writes(tmp_path: Path) -> None:
    import numpy as np

    from penstock.demo.gguf import write_gguf

    path = tmp_path / "m.gguf"
    tensors: dict[str, Any] = {"a": np.ones((8, 8), np.float16), "b": np.ones(8, np.float32)}
    write_gguf(path, {"x.y": 7, "words": ["a", "bc"], "on": True, "rate": 0.5}, tensors)
    header = read_gguf(path)
    assert header.weights == {"FP16": 128, "FP32": 32}
    assert header.metadata == {"x.y": 7, "words": 2, "on": 1, "rate": 0.5}


def test_tensors_of_a_type_that_came_later_have_what_the_others_leave(tmp_path: Path) -> None:
    tensors = {"a": (FP32, [4], 16), "b": (77, [4], 40), "c": (77, [9], 2)}
    assert read_gguf(written(tmp_path / "m.gguf", gguf(tensors))).weights == {
        "FP32": 16,
        "type 77": 42,
    }


def _endless_strings() -> bytes:
    entry = struct.pack("<Q", 1) + b"k" + struct.pack("<IIQ", 9, 8, 1 << 62)
    return gguf({}, entry, 1, data=1000)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"GGML", "is not a GGUF file"),
        (b"GGUF", "cut short"),
        (b"GGUF" + struct.pack("<IQQ", 3, 1 << 60, 0), "more than any model"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1 << 60), "more than any model"),
        (gguf({"a": (FP32, [4], 16)}, data=15), "do not fit into it"),
        (gguf({"a": (FP32, [1 << 62, 1 << 62], 16)}), "do not fit into it"),
        (gguf({"a": (FP32, [1] * 9, 4)}), "9 dimensions"),
        (_endless_strings(), "texts, more than any model"),
        (gguf({}, struct.pack("<Q", 1 << 50), 1, data=100), "a text of"),
        (gguf({}, struct.pack("<Q", 1) + b"k" + struct.pack("<I", 99), 1), "type 99"),
    ],
)
def test_a_damaged_header_is_one_error(tmp_path: Path, content: bytes, said: str) -> None:
    with pytest.raises(ModelLoadError, match=said):
        read_gguf(written(tmp_path / "m.gguf", content))


def test_an_endless_table_is_not_read_to_its_end(tmp_path: Path) -> None:
    """A million of tensors with names as long as the file, which is empty on the disk."""
    path = written(tmp_path / "m.gguf", b"GGUF" + struct.pack("<IQQ", 3, 1 << 20, 0))
    with path.open("r+b") as file:
        file.truncate(1 << 40)
        file.seek(24)
        file.write(struct.pack("<Q", 1 << 30))
    with pytest.raises(ModelLoadError, match="longer than any model's"):
        read_gguf(path)
