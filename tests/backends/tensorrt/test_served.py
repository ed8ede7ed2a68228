"""The whole path: a real server, a stock client, and stand-ins for TensorRT and CUDA."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
import tritonclient.http as httpclient
from tritonclient.utils import InferenceServerException

from backends.tensorrt.conftest import PACKAGE
from backends.tensorrt.plans import tensor, write, write_double
from harness.serving import PROGRAM, Served, serving

pytestmark = pytest.mark.slow

_PROGRAM = (str(Path(__file__).with_name("server.py")),)
_ASYNCHRONOUS = """
optimization {
  eager_batching: true priority: PRIORITY_MAX
  cuda { graphs: true output_copy_stream: true busy_wait_events: true }
}
instance_group { kind: KIND_GPU count: 2 }
"""
_SHAPES = """
platform: "tensorrt_plan"
max_batch_size: 8
input [
  { name: "x" data_type: TYPE_FP32 dims: [ 2 ] },
  { name: "size" data_type: TYPE_INT32 dims: [ 1 ] is_shape_tensor: true }
]
output [ { name: "y" data_type: TYPE_FP32 dims: [ -1 ] } ]
"""
_WRONG = """
backend: "tensorrt"
max_batch_size: 8
input { name: "x" data_type: TYPE_FP16 dims: [ 4 ] }
output { name: "y" data_type: TYPE_FP32 dims: [ 4 ] }
"""
_PROFILES = 'instance_group { kind: KIND_GPU profile: [ "0", "1" ] }'


def _write_models(models: Path) -> None:
    write_double(models / "double" / "1" / "model.plan")
    write_double(models / "ahead" / "1" / "model.plan")
    (models / "ahead" / "config.pbtxt").write_text(_ASYNCHRONOUS)
    narrow, wide = {"x": [[1, 1], [4, 8], [8, 16]]}, {"x": [[1, 8], [1, 64], [8, 128]]}
    write_double(models / "profiles" / "1" / "model.plan", narrow, wide)
    (models / "profiles" / "config.pbtxt").write_text(_PROFILES)
    write(
        models / "shapes" / "1" / "model.plan",
        "stretch",
        [
            tensor("x", -1, 2),
            tensor("size", 2, dtype="INT32", shape_tensor=True),
            tensor("y", -1, -1, input=False),
            tensor("shape", 2, dtype="INT32", shape_tensor=True, input=False),
        ],
        {"x": [[1, 2], [2, 2], [8, 2]], "size": [[1, 1], [2, 3], [8, 8]]},
    )
    (models / "shapes" / "config.pbtxt").write_text(_SHAPES)
    write_double(models / "wrong" / "1" / "model.plan")
    (models / "wrong" / "config.pbtxt").write_text(_WRONG)
    broken = write_double(models / "broken" / "1" / "model.plan")
    broken.write_bytes(broken.read_bytes()[:100])
    (models / "on_cpu" / "1").mkdir(parents=True)
    (models / "on_cpu" / "1" / "model.plan").touch()
    (models / "on_cpu" / "config.pbtxt").write_text("instance_group { kind: KIND_CPU }")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("tensorrt")
    _write_models(folder / "models")
    plan = write_double(folder / "exports" / "net.plan")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(PACKAGE))
        options = ("--model-control-mode=explicit", str(plan))
        with serving(folder / "models", folder / "log", *options, program=_PROGRAM) as served:
            yield served


@pytest.fixture(scope="module")
def client(server: Served) -> Iterator[grpcclient.InferenceServerClient]:
    with grpcclient.InferenceServerClient(server.grpc) as client:
        for model in ("double", "ahead", "profiles", "shapes"):
            client.load_model(model)
        yield client


def _ask(client: Any, model: str, kind: Any = grpcclient, **inputs: Any) -> Any:
    tensors = []
    for name, array in inputs.items():
        datatype = {"f": "FP32", "i": "INT32"}[array.dtype.kind]
        tensors.append(kind.InferInput(name, list(array.shape), datatype))
        tensors[-1].set_data_from_numpy(array)
    return client.infer(model, tensors)


def _rows(count: int, start: float = 0, width: int = 4) -> Any:
    return np.arange(count * width, dtype=np.float32).reshape(count, width) + start


@pytest.mark.contract("B-13", "AC-02", "AC-07", "R-14")
def test_a_plan_needs_no_configuration(
    server: Served, client: grpcclient.InferenceServerClient
) -> None:
    config = client.get_model_config("double", as_json=True)["config"]
    assert (config["platform"], config["backend"]) == ("tensorrt_plan", "tensorrt")
    assert config["max_batch_size"] == 8
    assert config["input"][0]["dims"] == ["4"]
    assert _ask(client, "double", x=_rows(3)).as_numpy("y").tolist() == (2 * _rows(3)).tolist()
    with httpclient.InferenceServerClient(server.http) as http:
        answer = _ask(http, "double", httpclient, x=_rows(8)).as_numpy("y")
    assert answer.tolist() == (2 * _rows(8)).tolist()


def test_a_plan_is_served_by_its_file(client: grpcclient.InferenceServerClient) -> None:
    config = client.get_model_config("net", as_json=True)["config"]
    assert (config["backend"], config["default_model_filename"]) == ("tensorrt", "net.plan")
    assert _ask(client, "net", x=_rows(1)).as_numpy("y").tolist() == (2 * _rows(1)).tolist()


@pytest.mark.contract("C-22", "C-23", "C-27")
def test_requests_of_many_clients_get_their_own_answers(
    client: grpcclient.InferenceServerClient,
) -> None:
    def answer(number: int) -> Any:
        return _ask(client, "ahead", x=_rows(1 + number % 4, number)).as_numpy("y").tolist()

    with ThreadPoolExecutor(16) as pool:
        answers = [*pool.map(answer, range(200))]
    assert answers == [(2 * _rows(1 + number % 4, number)).tolist() for number in range(200)]
    [statistics] = client.get_inference_statistics("ahead").model_stats
    assert statistics.execution_count < 200
    assert statistics.inference_stats.success.count == 200


@pytest.mark.contract("I-06")
def test_profiles_bound_what_clients_may_send(client: grpcclient.InferenceServerClient) -> None:
    for width in (1, 16, 17, 128):
        sent = _rows(2, 0, width)
        assert _ask(client, "profiles", x=sent).as_numpy("y").tolist() == (2 * sent).tolist()
    with pytest.raises(InferenceServerException, match=r"Profile among \[ 0\[0\] 1\[1\]\]") as why:
        _ask(client, "profiles", x=_rows(1, 0, 129))
    assert why.value.status() == "StatusCode.INTERNAL"
    with pytest.raises(InferenceServerException, match="batch-size must be <= 8"):
        _ask(client, "profiles", x=_rows(9))


@pytest.mark.contract("C-11", "V-14", "D-07")
@pytest.mark.parametrize("size", [[3], [1, 3]], ids=["values", "batch size too"])
def test_shape_tensors_are_sent_once(
    client: grpcclient.InferenceServerClient, size: list[int]
) -> None:
    """The form of Triton's documentation has the batch size in front."""
    sizes = np.array([2, *size[1:]] if len(size) > 1 else size, np.int32)
    x = np.array([[1, 2], [3, 4]], np.float32)
    answer = _ask(client, "shapes", x=x, size=sizes).as_numpy("y")
    assert answer.tolist() == [[1, 2, 3], [4, 1, 2]]


@pytest.mark.parametrize(
    ("model", "why"),
    [
        (
            "wrong",
            "configuration expects datatype TYPE_FP16 for input 'x', model provides TYPE_FP3",
        ),
        ("broken", "unable to create TensorRT engine: IRuntime::deserializeCudaEngine"),
        ("on_cpu", "unable to load model 'on_cpu', TensorRT backend supports only GPU device"),
    ],
)
def test_what_cannot_be_loaded_says_why(
    client: grpcclient.InferenceServerClient, model: str, why: str
) -> None:
    with pytest.raises(InferenceServerException, match=why):
        client.load_model(model)
    assert client.is_model_ready("double")


def test_models_come_and_go(client: grpcclient.InferenceServerClient) -> None:
    for _ in range(3):
        client.load_model("ahead")
        assert _ask(client, "ahead", x=_rows(1)).as_numpy("y").shape == (1, 4)
        client.unload_model("ahead")
    client.load_model("ahead")
    assert client.is_model_ready("ahead")


@pytest.mark.skipif(find_spec("tensorrt") is not None, reason="TensorRT is installed")
def test_what_is_missing_is_told(tmp_path: Path) -> None:
    plan = write_double(tmp_path / "net.plan")
    ports = ("--http-port=0", "--grpc-port=0", "--metrics-port=0")
    told = subprocess.run(
        [sys.executable, *PROGRAM, "serve", plan, *ports, "--exit-on-error=true"],
        env={**os.environ, "PYTHONPATH": ""},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert told.returncode != 0
    assert "without a GPU, serve the ONNX model that the plan was built of" in told.stderr
