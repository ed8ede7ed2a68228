"""Constants of OpenVINO's files."""

from __future__ import annotations

from pathlib import Path

import pytest

from models.sizing.headers.files import written
from penstock.core.errors import ModelLoadError
from penstock.models.sizing.headers.openvino_ir import check_openvino_ir, read_openvino_ir


def _constant(dtype: str, offset: str, size: str) -> str:
    return (
        f'<layer type="Const"><data element_type="{dtype}" shape="1" offset="{offset}"'
        f' size="{size}" /></layer>'
    )


def _model(folder: Path, weights: int, *constants: str) -> Path:
    written(folder / "model.bin", bytes(weights))
    return written(folder / "model.xml", f"<net>{''.join(constants)}</net>".encode())


def test_constants_are_counted_by_data_type(tmp_path: Path) -> None:
    constants = [
        _constant("f32", "0", "400"),
        _constant("u4", "400", "50"),
        _constant("bf16", "450", "8"),
        '<data rank="4" />',
    ]
    path = _model(tmp_path, 500, *constants)
    assert read_openvino_ir(path) == {"FP32": 400, "UINT4": 50, "BF16": 8, "as stored": 42}


def test_constants_of_the_same_bytes_are_one(tmp_path: Path) -> None:
    path = _model(tmp_path, 64, *[_constant("i64", "0", "64")] * 3)
    assert read_openvino_ir(path) == {"INT64": 64}


def test_a_tag_is_found_where_the_file_is_cut_for_reading(tmp_path: Path) -> None:
    padding = " " * ((1 << 20) - 40)
    path = _model(tmp_path, 64, padding, _constant("f16", "0", "64"))
    assert read_openvino_ir(path) == {"FP16": 64}


@pytest.mark.parametrize(
    ("constant", "said"),
    [
        (_constant("f32", "0", "99"), "'model.bin' beside it does not hold"),
        (_constant("f32", "0", "9" * 30), "which is no number"),
        (_constant("f32", "-1", "4"), "which is no number"),
    ],
)
def test_constants_that_are_not_there_are_refused(tmp_path: Path, constant: str, said: str) -> None:
    path = _model(tmp_path, 64, constant)
    for reader in (read_openvino_ir, check_openvino_ir):
        with pytest.raises(ModelLoadError, match=said):
            reader(path)


def test_a_constant_may_lie_inside_of_another_and_not_behind_the_end(tmp_path: Path) -> None:
    inside = _constant("f32", "0", "64"), _constant("f32", "32", "32")
    check_openvino_ir(_model(tmp_path, 64, *inside))
    with pytest.raises(ModelLoadError, match="does not hold"):
        check_openvino_ir(_model(tmp_path, 63, *inside))
