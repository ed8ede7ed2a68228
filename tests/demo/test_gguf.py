"""Our GGUF files, read by the format's own library."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from penstock.demo.gguf import Value, write_gguf

gguf = pytest.importorskip("gguf")


@pytest.mark.parametrize(
    "value", ["größe", 7, 0.5, True, ["a", "b c", ""], [1, 3, 2]], ids=lambda value: repr(value)
)
def test_a_value_is_read_back(tmp_path: Path, value: Value) -> None:
    write_gguf(tmp_path / "m.gguf", {"general.key": value}, {})
    field = gguf.GGUFReader(tmp_path / "m.gguf").get_field("general.key")
    assert field.contents() == value


def test_tensors_are_read_back(tmp_path: Path) -> None:
    tensors: dict[str, NDArray[Any]] = {
        "odd": np.arange(6, dtype=np.float16).reshape(2, 3),
        "row": np.arange(5, dtype=np.float32),
    }
    write_gguf(tmp_path / "m.gguf", {"general.architecture": "llama"}, tensors)
    read = {t.name: t.data for t in gguf.GGUFReader(tmp_path / "m.gguf").tensors}
    assert read.keys() == tensors.keys()
    np.testing.assert_array_equal(read["odd"], tensors["odd"])
    np.testing.assert_array_equal(read["row"], tensors["row"])
