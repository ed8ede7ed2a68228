"""Files of models, their labels and initial states, archives, sounds and pictures."""

from __future__ import annotations

import io
import json
import struct
import tarfile
import wave
import zipfile
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from fuzz.door import ARCHIVES, JSON, OURS, PROTO, Door, Read


def _file(path: Path, read_file: Callable[[Path], object]) -> Read:
    """A reader of a file, which is written anew for each input."""

    def read(data: bytes) -> None:
        path.write_bytes(data)
        read_file(path)

    return read


def _weights(name: str) -> Callable[[Path], Read]:
    def make(folder: Path) -> Read:
        from penstock.models.sizing.weights import read_weights

        (folder / "m.bin").write_bytes(bytes(16))
        return _file(folder / name, read_weights)

    return make


_LABELLED = b"""
backend: "python" input [ { name: "X" data_type: TYPE_FP32 dims: [ 1 ] } ]
output [ { name: "Y" data_type: TYPE_FP32 dims: [ 3 ] label_filename: "labels.txt" } ]
"""
_STATEFUL = b"""
backend: "python" max_batch_size: 2 input [ { name: "X" data_type: TYPE_INT32 dims: [ 1 ] } ]
output [ { name: "Y" data_type: TYPE_INT32 dims: [ 1 ] } ]
sequence_batching { state [ {
    input_name: "I" output_name: "O" data_type: TYPE_INT32 dims: [ -1, 2 ]
    initial_state: { name: "first" data_type: TYPE_INT32 dims: [ 2, 2 ] data_file: "first" }
  } ] }
"""


def _labels(folder: Path) -> Read:
    from penstock.models.config.pbtxt import parse_pbtxt
    from penstock.models.repository.version_files import read_labels

    config = parse_pbtxt(_LABELLED, "config.pbtxt")
    return _file(folder / "labels.txt", lambda _: read_labels(config, folder))


def _states(folder: Path) -> Read:
    from penstock.models.config.pbtxt import parse_pbtxt
    from penstock.models.repository.implicit_state_files import read_states

    config = parse_pbtxt(_STATEFUL, "config.pbtxt")
    (folder / "initial_state").mkdir()

    def read(_: Path) -> None:
        first = read_states(config, folder).initial()["I"]
        assert first.numpy().shape == (1, 2, 2)

    return _file(folder / "initial_state" / "first", read)


def _safetensors() -> list[bytes]:
    head = json.dumps({"w": {"dtype": "F16", "shape": [2, 2], "data_offsets": [0, 8]}}).encode()
    return [struct.pack("<Q", len(head)) + head + bytes(8)]


def _gguf() -> list[bytes]:
    def text(value: bytes) -> bytes:
        return struct.pack("<Q", len(value)) + value

    pair = text(b"general.architecture") + struct.pack("<I", 8) + text(b"llama")
    tensor = text(b"w") + struct.pack("<IQIQ", 1, 4, 0, 0)
    return [b"GGUF" + struct.pack("<IQQ", 3, 1, 1) + pair + tensor + bytes(64)]


def _onnx() -> list[bytes]:
    import numpy as np
    from onnx import TensorProto, helper, numpy_helper

    place = helper.make_tensor_value_info("Y", TensorProto.FLOAT, [2])
    weights = numpy_helper.from_array(np.ones(2, np.float32), "w")
    node = helper.make_node("Identity", ["w"], ["Y"])
    graph = helper.make_graph([node], "g", [], [place], [weights])
    return [helper.make_model(graph).SerializeToString()]


_OPENVINO = b"""<?xml version="1.0"?>
<net name="m" version="11"><layers><layer id="0" name="w" type="Const" version="opset1">
<data element_type="f32" shape="2, 2" offset="0" size="16"/></layer></layers></net>
"""


def _torch() -> list[bytes]:
    import pickle

    kept = io.BytesIO()
    with zipfile.ZipFile(kept, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("m/data.pkl", pickle.dumps({"w": [1.0]}))
        archive.writestr("m/data/0", bytes(16))
        archive.writestr("m/version", b"3\n")
    return [kept.getvalue()]


def _tar(folder: Path) -> Read:
    from penstock.system.tar_archive import unpack_tar

    def unpack(path: Path) -> None:
        with TemporaryDirectory(dir=path.parent) as outer:
            target = Path(outer) / "inside"
            target.mkdir()
            try:
                unpack_tar(path, target)
            finally:
                assert [*Path(outer).iterdir()] == [target], "unpacked outside"

    return _file(folder / "m.tar", unpack)


def _tars() -> list[bytes]:
    kept = io.BytesIO()
    with tarfile.open(fileobj=kept, mode="w") as archive:
        for name, kind, to in (
            ("a", tarfile.REGTYPE, ""),
            ("d", tarfile.DIRTYPE, ""),
            ("d/link", tarfile.SYMTYPE, "../a"),
            ("d/hard", tarfile.LNKTYPE, "a"),
        ):
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, to
            archive.addfile(member)
    return [kept.getvalue()[:5120]]


def _zip(folder: Path) -> Read:
    from penstock.system.archives import zip_members

    return _file(folder / "m.zip", zip_members)


def _wav(_: Path) -> Read:
    from penstock_backends.tensor_models.wav import read_wav

    return lambda data: read_wav(data, "AUDIO").samples()


def _wavs() -> list[bytes]:
    kept = io.BytesIO()
    with wave.open(kept, "wb") as file:
        file.setparams((2, 2, 16000, 4, "NONE", ""))
        file.writeframes(bytes(16))
    return [kept.getvalue()]


def _image(_: Path) -> Read:
    from penstock_backends.language_model.media.image_decoding import PixelBudget, decode_image

    return lambda data: decode_image(data, "IMAGE", PixelBudget(1 << 16))


def _images() -> list[bytes]:
    from PIL import Image

    found = []
    for form in ("PNG", "JPEG", "WEBP", "GIF"):
        kept = io.BytesIO()
        Image.new("RGB", (4, 4), (9, 8, 7)).save(kept, form)
        found.append(kept.getvalue())
    return found


DOORS = {
    "labels": Door(_labels, lambda: [b"cat\ndog\n", b"a\r\n\n"], OURS, (b"\n", b"\xff"), 600),
    "states": Door(_states, lambda: [bytes(16), bytes(20)], OURS, (bytes(8),), 600),
    "safetensors": Door(_weights("m.safetensors"), _safetensors, OURS, JSON, 600),
    "gguf": Door(_weights("m.gguf"), _gguf, OURS, (b"\xff" * 8, b"\0" * 8), 600),
    "onnx": Door(_weights("m.onnx"), _onnx, OURS, PROTO, 600),
    "openvino": Door(
        _weights("m.xml"), lambda: [_OPENVINO], OURS, (b"<!ENTITY", b"&a;", b"/>"), 600
    ),
    "torch": Door(_weights("m.pt"), _torch, OURS, (b"PK\1\2", b"PK\5\6", b"\xff" * 4), 600),
    "tar": Door(_tar, _tars, ARCHIVES, (b"../", b"\0", b"7777777\0"), 400),
    "zip": Door(_zip, _torch, ARCHIVES, (b"PK\1\2", b"PK\5\6", b"\xff" * 4), 600),
    "wav": Door(_wav, _wavs, OURS, (b"data", b"fmt ", b"\xff" * 4)),
    "image": Door(_image, _images, OURS, (b"IHDR", b"IDAT", b"\xff\xd8", b"\xff" * 4), 1000),
}
