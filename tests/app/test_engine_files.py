"""Models of engines given as files, served without a repository."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from tritonclient.grpc import InferenceServerClient, InferInput

from backends.fil import forests
from backends.openvino import toys
from backends.tensor_models import graphs
from harness.serving import Served, serving, start

pytestmark = pytest.mark.slow

ROWS = np.random.default_rng(5).normal(size=(3, 5)).astype(np.float32)


@pytest.fixture(scope="module")
def author(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of somebody who has models of many kinds, and other files."""
    folder = tmp_path_factory.mktemp("author")
    graphs.save_external(folder / "plus.onnx", "plus.data")
    (folder / "plus.pbtxt").write_text(
        'output [ { name: "y" data_type: TYPE_FP32 dims: [ 2 ] label_filename: "names.txt" } ]\n'
    )
    (folder / "names.txt").write_text("first\nsecond\n")
    toys.save_double(folder / "double.xml", layout="NC")
    (folder / "1").write_text("a file that is called as a version")
    (folder / "config.pbtxt").write_text("this is for another model")
    return folder


@pytest.fixture(scope="module")
def server(author: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    log = tmp_path_factory.mktemp("log") / "log"
    files = (f"{author}/plus.onnx", f"twice={author}/double.xml")
    with serving(None, log, *files, "--log-verbose=1") as server:
        yield server


def _ask(server: Served, name: str, rows: Any, **given: str) -> Any:
    names = {"input": "x", "output": "y", **given}
    tensor = InferInput(names["input"], list(rows.shape), "FP32")
    tensor.set_data_from_numpy(rows)
    with InferenceServerClient(server.grpc) as client:
        return client.infer(name, [tensor]).as_numpy(names["output"])


def _refusal(log: Path, *arguments: str) -> str:
    process = start(None, log, *arguments)
    assert process.wait(60) == 1
    return log.read_text()


def test_an_onnx_file_is_served_with_the_data_beside_it(server: Served) -> None:
    assert _ask(server, "plus", np.ones((3, 2), np.float32)).tolist() == [[2, 3]] * 3


def test_labels_lie_beside_the_file(server: Served) -> None:
    output = {"name": "y", "parameters": {"classification": 1}}
    x = {"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [0, 0]}
    body = {"inputs": [x], "outputs": [output]}
    answer = httpx.post(f"http://{server.http}/v2/models/plus/infer", json=body, verify=False)
    assert answer.json()["outputs"][0]["data"] == ["2.000000:1:second"]


def test_an_ir_file_is_served_with_its_weights(server: Served) -> None:
    assert _ask(server, "twice", np.ones((3, 2), np.float32)).tolist() == [[2, 2]] * 3


@pytest.mark.contract("AC-16")
def test_a_verbose_log_has_completed_configurations(server: Served) -> None:
    _, *logged = server.log.read_text().split("post auto-complete:\n")
    completed = [json.JSONDecoder().raw_decode(text)[0] for text in logged]
    found = {config["name"]: config for config in completed}
    assert found.keys() == {"plus", "twice"}
    assert found["plus"]["max_batch_size"] == 4
    assert [tensor["name"] for tensor in found["plus"]["input"]] == ["x"]


def test_a_forest_whose_file_says_what_it_answers_is_served(author: Path, tmp_path: Path) -> None:
    forest = forests.lightgbm(ROWS.repeat(20, 0), "regression", author / "trees.txt")
    with serving(None, tmp_path / "log", f"{author}/trees.txt") as server:
        answer = _ask(server, "trees", ROWS, input="input__0", output="output__0")
    assert np.allclose(answer[:, 0], forest.predict(ROWS), atol=1e-5)


def test_one_network_in_three_formats(tmp_path: Path) -> None:
    found = find_spec("basic_pitch")
    if found is None or not found.submodule_search_locations:
        pytest.skip("the network is in a package: pip install --no-deps basic-pitch==0.4.0")
    folder = Path(found.submodule_search_locations[0]) / "saved_models" / "icassp_2022"
    files = [f"a={folder}/nmp", f"b={folder}/nmp.tflite", f"c={folder}/nmp.onnx"]
    with (
        serving(None, tmp_path / "log", *files) as server,
        InferenceServerClient(server.grpc) as client,
    ):
        answers = [_pitches(client, name) for name in "abc"]
    assert [each.shape for each in answers] == [answers[0].shape] * 3
    assert np.allclose(answers[0], answers[1], atol=2e-6)
    assert np.allclose(answers[0], answers[2], atol=1e-5)


def _pitches(client: InferenceServerClient, name: str) -> Any:
    (described,) = client.get_model_metadata(name, as_json=True)["inputs"]
    noise = np.random.default_rng(1).normal(size=(1, 43844, 1)).astype(np.float32)
    tensor = InferInput(described["name"], list(noise.shape), "FP32")
    tensor.set_data_from_numpy(noise)
    answer = client.infer(name, [tensor])
    outputs = [answer.as_numpy(output.name) for output in answer.get_response().outputs]
    return max(outputs, key=np.size)  # the one that is called otherwise in each format


def test_damaged_files_end_the_start_with_the_reason_of_each(tmp_path: Path) -> None:
    contents = {
        "empty.onnx": b"",
        "cut.onnx": b"\x08\x0a\x12\xff",
        "foreign.onnx": b"PK\x03\x04 a zip",
        "opened.xml": b"<net><layers",
        "short.tflite": b"\x1c\x00\x00\x00TFL3",
    }
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    text = _refusal(tmp_path / "log", *(f"{tmp_path}/{name}" for name in contents))
    named = re.findall(r"failed to load model '(\w+)': (?:onnx runtime|openvino) error", text)
    assert set(named) == {Path(name).stem for name in contents}


def test_data_outside_of_the_folder_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "author"
    graphs.save_external(folder / "plus.onnx", "plus.data")
    graph = (folder / "plus.onnx").read_bytes()
    (folder / "plus.data").rename(tmp_path / "x.data")
    (folder / "plus.onnx").write_bytes(graph.replace(b"plus.data", b"../x.data"))
    assert "failed to load model 'plus': " in _refusal(tmp_path / "log", f"{folder}/plus.onnx")
