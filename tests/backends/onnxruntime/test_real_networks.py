"""Networks that packages ship, behind a real server: one tells types of files, one hears speech."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
from numpy.testing import assert_allclose

from harness.serving import serving

pytestmark = pytest.mark.slow

_SILERO = """
sequence_batching {
  direct { }
  state {
    input_name: "state"
    output_name: "stateN"
    data_type: TYPE_FP32
    dims: [ 2, 1, 128 ]
    initial_state { name: "silence" data_type: TYPE_FP32 dims: [ 2, 1, 128 ] zero_data: true }
  }
}
input [
  { name: "input" data_type: TYPE_FP32 dims: [ 1, -1 ] },
  { name: "sr" data_type: TYPE_INT64 dims: [ 1 ] }
]
output { name: "output" data_type: TYPE_FP32 dims: [ 1, 1 ] }
"""
_MAGIKA = """
max_batch_size: 8
output { name: "target_label" data_type: TYPE_FP32 dims: 214 label_filename: "labels.txt" }
input { name: "bytes" data_type: TYPE_INT32 dims: 2048 }
"""
_NOTHING = 256
"""What stands where a file has no bytes."""


def _package(name: str, version: str) -> Path:
    spec = find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        wheel = f"{name.replace('_', '-')}=={version}"
        pytest.skip(f"the network is in a package: pip install --no-deps {wheel}")
    return Path(spec.submodule_search_locations[0])


@pytest.fixture(scope="module")
def magika() -> Path:
    return _package("magika", "1.0.3") / "models" / "standard_v3_3"


@pytest.fixture(scope="module")
def silero() -> Path:
    return _package("silero_vad", "6.2.3") / "data" / "silero_vad.onnx"


@pytest.fixture(scope="module")
def client(
    magika: Path, silero: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[grpcclient.InferenceServerClient]:
    models = tmp_path_factory.mktemp("real") / "models"
    for name, config, graph in (
        ("magika", _MAGIKA, magika / "model.onnx"),
        ("silero", _SILERO, silero),
    ):
        (models / name / "1").mkdir(parents=True)
        (models / name / "config.pbtxt").write_text(config)
        (models / name / "1" / "model.onnx").symlink_to(graph)
    labels = json.loads((magika / "config.min.json").read_text())["target_labels_space"]
    (models / "magika" / "labels.txt").write_text("\n".join(labels))
    with (
        serving(models, tmp_path_factory.mktemp("log") / "log") as served,
        grpcclient.InferenceServerClient(served.grpc) as client,
    ):
        yield client


def _input(name: str, kind: str, array: Any) -> grpcclient.InferInput:
    tensor = grpcclient.InferInput(name, list(array.shape), kind)
    tensor.set_data_from_numpy(array)
    return tensor


def _features(content: bytes) -> list[int]:
    """The first and the last bytes of a short file."""
    ints = list(content.strip())
    return [
        *(ints + [_NOTHING] * 1024)[:1024],
        *([_NOTHING] * 1024 + ints)[-1024:],
    ]


def test_a_classifier_of_files_tells_their_types(client: grpcclient.InferenceServerClient) -> None:
    """A batch of source code and of a configuration, answered with labels."""
    files = [
        Path(__file__).read_bytes()[:1000],
        b'{"name": "penstock", "ports": [8000, 8001]}\n' * 9,
    ]
    rows = np.array([_features(file) for file in files], np.int32)
    wanted = grpcclient.InferRequestedOutput("target_label", class_count=1)
    answer = client.infer("magika", [_input("bytes", "INT32", rows)], outputs=[wanted])
    found = [text.decode().rpartition(":")[2] for text in answer.as_numpy("target_label")[:, 0]]
    assert found[0] == "python"
    assert found[1].startswith("json")


@pytest.mark.contract("S-16", "S-17")
def test_speech_detection_keeps_its_state_between_requests(
    client: grpcclient.InferenceServerClient, silero: Path
) -> None:
    """The state is the server's; the answers are those of a loop that keeps it itself."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(silero))
    state = np.zeros((2, 1, 128), np.float32)
    rate = np.array([16000])
    parts = np.random.default_rng(5).normal(0, 0.1, (6, 1, 576)).astype(np.float32)
    for turn, part in enumerate(parts):
        feed = {"input": part, "state": state, "sr": rate.reshape(())}
        expected, state = session.run(None, feed)
        answer = client.infer(
            "silero",
            [_input("input", "FP32", part), _input("sr", "INT64", rate)],
            sequence_id=3,
            sequence_start=turn == 0,
            sequence_end=turn == len(parts) - 1,
        )
        assert_allclose(answer.as_numpy("output"), expected, atol=1e-6)
