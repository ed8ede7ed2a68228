"""Models of OpenVINO and TensorFlow as a server finds them, by their files alone."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock.in_process as tritonserver
from backends.openvino import toys

pytestmark = pytest.mark.slow

_GRAPHDEF = """
platform: "tensorflow_graphdef"
max_batch_size: 8
instance_group { kind: KIND_AUTO count: 2 }
input { name: "x" data_type: TYPE_FP32 dims: 2 }
output { name: "y" data_type: TYPE_FP32 dims: 2 }
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tritonserver.Server]:
    models = tmp_path_factory.mktemp("models")
    toys.save_double(models / "double" / "1" / "model.xml", (1, 2), layout="NC")
    toys.save_graphdef(models / "graphdef" / "1" / "model.graphdef")
    (models / "graphdef" / "config.pbtxt").write_text(_GRAPHDEF)
    with tritonserver.Server(model_repository=str(models)) as server:
        yield server


def _answer(model: tritonserver.Model, x: Any) -> Any:
    (response,) = model.infer(inputs={"x": x})
    return np.from_dlpack(response.outputs["y"])


@pytest.mark.contract("AC-02", "AC-12", "B-14", "R-18")
def test_the_file_chooses_the_backend_and_completes_the_model(server: tritonserver.Server) -> None:
    config = server.model("double").config()
    assert (config["backend"], config["max_batch_size"]) == ("openvino", 4)
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    assert _answer(server.model("double"), x).tolist() == (2 * x).tolist()


@pytest.mark.contract("B-15", "R-17")
def test_instances_of_a_graphdef_answer(server: tritonserver.Server) -> None:
    groups = server.model("graphdef").config()["instance_group"]
    assert [(group["kind"], group["count"]) for group in groups] == [("KIND_CPU", 2)]
    x = np.ones((1, 2), np.float32)
    assert _answer(server.model("graphdef"), x).tolist() == [[2, 2]]


@pytest.mark.contract("AC-13", "R-17")
def test_a_savedmodel_needs_no_configuration(tmp_path: Path, basic_pitch: Path) -> None:
    shutil.copytree(basic_pitch / "nmp", tmp_path / "pitch" / "1" / "model.savedmodel")
    with tritonserver.Server(model_repository=str(tmp_path)) as server:
        config = server.model("pitch").config()
    assert (config["platform"], config["backend"]) == ("tensorflow_savedmodel", "tensorflow")
    assert [tensor["name"] for tensor in config["output"]] == ["contour", "note", "onset"]
