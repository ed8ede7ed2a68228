"""Properties of all readers: whatever a file holds, there is one error, or sizes that can be."""

from __future__ import annotations

import tracemalloc
import zipfile
from collections.abc import Callable, Mapping
from io import BytesIO
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.sizing.headers.files import gguf, gguf_entry, onnx, safetensors, tensor
from penstock.core.errors import ModelLoadError
from penstock.models.sizing.headers.gguf import read_gguf
from penstock.models.sizing.headers.onnx import read_onnx
from penstock.models.sizing.headers.openvino_ir import read_openvino_ir
from penstock.models.sizing.headers.safetensors import read_safetensors
from penstock.models.sizing.headers.torch_archive import read_torch_archive

Reader = Callable[[Path], Mapping[str, int]]


def _zip() -> bytes:
    file = BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("m/data/0", bytes(64))
        archive.writestr("m/x_weights_config.json", b'{"config": {}}')
    return file.getvalue()


_ENTRIES = [gguf_entry("general.architecture", "x"), gguf_entry("x.heads", [1, 2, 3])]
_FILES: list[tuple[str, Reader, bytes]] = [
    ("m.safetensors", read_safetensors, safetensors({"a": ("F16", [4], 8), "b": ("I8", [3], 3)})),
    ("m.onnx", read_onnx, onnx(tensor(1, [2, 2], raw=bytes(16)), tensor(7, [1], raw=bytes(8)))),
    (
        "m.gguf",
        lambda path: read_gguf(path).weights,
        gguf({"a": (0, [4], 16), "b": (2, [32], 18)}, b"".join(_ENTRIES), 2),
    ),
    ("m.pt", read_torch_archive, _zip()),
    ("m.xml", read_openvino_ir, b'<data element_type="f16" shape="2" offset="0" size="4" />'),
]
_BYTES = st.binary(max_size=9)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("hostile")
    (made / "m.bin").write_bytes(bytes(16))
    return made


@pytest.mark.parametrize(("name", "read", "valid"), _FILES, ids=[row[0] for row in _FILES])
@given(data=st.data())
def test_a_damaged_file_is_refused_or_has_sizes_that_it_can_hold(
    folder: Path, name: str, read: Reader, valid: bytes, data: st.DataObject
) -> None:
    begin = data.draw(st.integers(0, len(valid)))
    end = data.draw(st.integers(begin, min(begin + 12, len(valid))))
    content = valid[:begin] + data.draw(_BYTES) + valid[end:]
    (folder / name).write_bytes(content)
    try:
        found = read(folder / name)
    except ModelLoadError as error:
        assert str(folder / name) in error.message  # noqa: PT017
    else:
        assert sum(found.values()) <= len(content) * 16 + 16


@pytest.mark.parametrize(("name", "read", "valid"), _FILES, ids=[row[0] for row in _FILES])
@given(content=st.binary(max_size=200))
def test_any_bytes_are_refused_or_read(
    folder: Path, name: str, read: Reader, valid: bytes, content: bytes
) -> None:
    start = valid[: len(content) % 30]
    (folder / name).write_bytes(start + content)
    try:
        found = read(folder / name)
    except ModelLoadError as error:
        assert error.message  # noqa: PT017
    else:
        assert all(size >= 0 for size in found.values())


@pytest.mark.slow
@pytest.mark.parametrize(("name", "read", "valid"), _FILES, ids=[row[0] for row in _FILES])
def test_a_file_of_many_gigabytes_takes_no_memory(
    folder: Path, name: str, read: Reader, valid: bytes
) -> None:
    """What it says first, and then nothing, to the end of a file that is empty on the disk."""
    path = folder / f"long-{name}"
    path.write_bytes(valid)
    with path.open("r+b") as file:
        file.truncate(64 << 30)
    tracemalloc.start()
    try:
        read(path)
    except ModelLoadError:
        pass
    finally:
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert most < 64 << 20
