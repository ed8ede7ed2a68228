"""`FileGraph` reads of an ONNX file what ONNX Runtime says of it, and of no other file anything."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.tensor_models import graphs
from models.sizing.headers.files import external, onnx, written
from penstock.core.config import ModelConfig
from penstock.core.errors import InternalError, ModelLoadError
from penstock_backends.onnxruntime.file_graph import FileGraph, UnknownFormError

_CONFIG = ModelConfig(name="m", backend="onnxruntime")
_SAVERS = [
    graphs.save_identity,
    graphs.save_sums,
    graphs.save_with_default,
    graphs.save_encoder,
    graphs.save_cross_encoder,
    graphs.save_image_tower,
]


def _read(path: Path) -> FileGraph:
    return FileGraph(_CONFIG, path)


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return graphs.save_encoder(tmp_path_factory.mktemp("graph") / "model.onnx").read_bytes()


@pytest.mark.parametrize("save", _SAVERS)
def test_tensors_are_those_of_onnx_runtime(save: Callable[[Path], Path], tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    path = save(tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    graph = _read(path)
    assert [*graph.inputs] == [one.name for one in session.get_inputs()]
    assert [*graph.outputs] == [one.name for one in session.get_outputs()]
    for one in session.get_inputs():
        dims = tuple(d if isinstance(d, int) else -1 for d in one.shape)
        assert tuple(graph.inputs[one.name].dims) == dims


def test_it_runs_nothing(tmp_path: Path) -> None:
    graph = _read(graphs.save_identity(tmp_path / "model.onnx"))
    with pytest.raises(InternalError):
        graph.run({}, [])


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match="cannot be read: No such file"):
        _read(tmp_path / "model.onnx")


@pytest.mark.parametrize("content", [b"", b"\x00", b"PK\x03\x04", b"\x0a\xff\xff\xff\xff\x0f"])
def test_a_file_of_another_kind_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    with pytest.raises((ModelLoadError, UnknownFormError)):
        _read(path)


@pytest.mark.parametrize(
    ("size", "location", "said"),
    [
        (None, "blob.bin", "in 'blob.bin', which is not there"),
        (7, "blob.bin", "in 'blob.bin', which is cut short"),
        (8, "../blob.bin", "at '../blob.bin', which is no file beside it"),
    ],
)
def test_weights_that_are_not_beside_the_graph_are_told(
    size: int | None, location: str, said: str, tmp_path: Path
) -> None:
    tensor = external(1, [2], location=location, length="8")
    path = written(tmp_path / "model.onnx", onnx(tensor))
    if size is not None:
        written(tmp_path / "blob.bin", bytes(size))
    with pytest.raises(ModelLoadError, match=said.replace(".", r"\.")):
        _read(path)
    written(tmp_path / "blob.bin", bytes(8))
    assert location != "blob.bin" or _read(path).inputs == {}


def test_a_file_that_ends_too_soon_is_refused(encoder: bytes, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    for size in range(0, len(encoder), max(1, len(encoder) // 200)):
        path.write_bytes(encoder[:size])
        with pytest.raises((ModelLoadError, UnknownFormError)):
            _read(path)


@given(data=st.data())
def test_a_damaged_file_is_read_or_refused(
    data: st.DataObject, encoder: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    damaged = bytearray(encoder)
    for _ in range(data.draw(st.integers(1, 8))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.getbasetemp() / "damaged.onnx"
    path.write_bytes(damaged)
    with suppress(ModelLoadError, UnknownFormError):
        _read(path)
