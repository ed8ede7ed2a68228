"""Initialisers and constants of ONNX files."""

from __future__ import annotations

from pathlib import Path

import pytest

from models.sizing.headers.files import external, message, onnx, tensor, varint, whole, written
from penstock.core.errors import ModelLoadError
from penstock.models.sizing.headers.onnx import read_onnx

FP32, INT8, INT64, STRING, FP16, INT4 = 1, 3, 7, 8, 10, 22


def test_initialisers_are_counted_by_data_type(tmp_path: Path) -> None:
    floats = tensor(FP32, [2, 3], raw=bytes(24))
    packed = tensor(INT64, [3], more=message(7, b"\1\2\3"))
    content = onnx(floats, floats, packed, tensor(INT4, [3], raw=bytes(2)))
    path = written(tmp_path / "model.onnx", content)
    assert read_onnx(path) == {"FP32": 48, "INT64": 24, "INT4": 2}


def test_numbers_that_are_not_packed_are_counted(tmp_path: Path) -> None:
    values = whole(5, 1) + whole(5, 0)
    path = written(tmp_path / "model.onnx", onnx(tensor(INT8, [2], more=values)))
    assert read_onnx(path) == {"INT8": 2}


def test_constants_of_nodes_and_of_graphs_inside_are_counted(tmp_path: Path) -> None:
    constant = message(5, message(5, tensor(FP16, [8], raw=bytes(16))))
    inside = message(5, tensor(FP32, [1], raw=bytes(4)))
    branch = message(5, message(6, inside))
    path = written(tmp_path / "model.onnx", onnx(nodes=[constant, branch]))
    assert read_onnx(path) == {"FP16": 16, "FP32": 4}


def test_a_graph_without_weights_has_none(tmp_path: Path) -> None:
    assert read_onnx(written(tmp_path / "model.onnx", onnx())) == {}


def test_data_in_another_file_are_counted_and_not_read(tmp_path: Path) -> None:
    with (tmp_path / "model.data").open("wb") as file:
        file.truncate(3 << 40)
    more = external(FP32, [1 << 39], location="model.data", offset="4096")
    given = external(FP16, [7], location="model.data", length="100")
    path = written(tmp_path / "model.onnx", onnx(more, given))
    assert read_onnx(path) == {"FP32": 2 << 40, "FP16": 100}


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ({"location": "../secret"}, "no file beside it"),
        ({"location": "/etc/passwd"}, "no file beside it"),
        ({"offset": "1"}, "no file beside it"),
        ({"location": "gone"}, "which is not there"),
        ({"location": "model.data", "offset": "9"}, "which is cut short"),
        ({"location": "model.data", "offset": "-1"}, "whose 'offset' is '-1'"),
    ],
)
def test_data_elsewhere_or_missing_are_refused(
    tmp_path: Path, entries: dict[str, str], said: str
) -> None:
    written(tmp_path / "model.data", bytes(16))
    path = written(tmp_path / "model.onnx", onnx(external(FP32, [2], **entries)))
    with pytest.raises(ModelLoadError, match=said):
        read_onnx(path)


def test_a_type_that_came_later_has_the_bytes_that_lie_there(tmp_path: Path) -> None:
    written(tmp_path / "model.data", bytes(100))
    beside = external(99, [9], location="model.data", offset="60")
    path = written(tmp_path / "model.onnx", onnx(tensor(99, [3], raw=bytes(7)), beside))
    assert read_onnx(path) == {"type 99": 47}


def _forest(nodes: int) -> bytes:
    """The attributes of a forest, with a number for each node that is not packed."""
    ids = b"".join(whole(8, at % 300) for at in range(nodes))
    values = (varint(7 << 3 | 5) + b"\x40\0\x3d\x40") * nodes
    modes = message(9, b"BRANCH_LEQ") * nodes
    node = b"".join(message(5, message(1, b"n") + part) for part in (modes, *(ids, values) * 5))
    return onnx(tensor(FP32, [2], raw=bytes(8)), nodes=[node])


def test_numbers_of_forests_are_passed_over(tmp_path: Path) -> None:
    content = _forest(2000)
    path = written(tmp_path / "model.onnx", content)
    assert read_onnx(path) == {"FP32": 8}
    damaged = content.replace(b"\x3d\x40\0\x3d\x40" * 9, b"\x3b" * 45)
    with pytest.raises(ModelLoadError, match="no protobuf message"):
        read_onnx(written(path, damaged))


@pytest.mark.slow
def test_a_forest_of_400_000_nodes_is_read(tmp_path: Path) -> None:
    assert read_onnx(written(tmp_path / "model.onnx", _forest(400_000))) == {"FP32": 8}


def _nested(depth: int) -> bytes:
    graph = b""
    for _ in range(depth):
        graph = message(1, message(5, message(6, graph)))
    return message(7, graph)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "has no graph"),
        (b"\xff" * 20, "no protobuf message"),
        (b"\x0b", "no protobuf message"),
        (onnx(tensor(FP32, [4], raw=bytes(16)))[:-1], "cut short, or damaged"),
        (message(7, message(5, b"") + varint(5 << 3 | 2) + b"\x7f"), "cut short, or damaged"),
        (onnx(tensor(FP32, [1 << 60, 1 << 60])), "elements in 0 bytes"),
        (_nested(200), "deeper than any model"),
    ],
)
def test_a_damaged_file_is_one_error(tmp_path: Path, content: bytes, said: str) -> None:
    with pytest.raises(ModelLoadError, match=said):
        read_onnx(written(tmp_path / "model.onnx", content))


def test_it_counts_what_onnx_counts(tmp_path: Path) -> None:
    """A file of the library, with what it stores in a file of its own."""
    onnx_library = pytest.importorskip("onnx", reason="onnx is not installed")
    import numpy as np

    weights = [np.ones((64, 64), np.float32), np.ones(100, np.float16), np.ones(3, np.int64)]
    initializers = [
        onnx_library.numpy_helper.from_array(each, f"w{at}") for at, each in enumerate(weights)
    ]
    graph = onnx_library.helper.make_graph([], "g", [], [], initializers)
    model = onnx_library.helper.make_model(graph)
    onnx_library.save_model(
        model, tmp_path / "model.onnx", save_as_external_data=True, size_threshold=1024
    )
    found = read_onnx(tmp_path / "model.onnx")
    assert found == {"FP32": 64 * 64 * 4, "FP16": 200, "INT64": 24}
