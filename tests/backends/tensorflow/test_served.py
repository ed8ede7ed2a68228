"""Models on TensorFlow: in a process with it, and behind a real server, asked by tritonclient."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
from numpy.testing import assert_allclose
from tritonclient.utils import InferenceServerException

from backends.conftest import OpenInstance
from backends.tensor_models import graphs
from harness.serving import Served, serving
from penstock.core.config import ModelConfig
from penstock_backends.openvino import OpenVinoBackend
from programs.places import find

_ANSWERS = Path(__file__).with_name("answers.py")
_SOURCES = [Path(__file__).parents[3] / folder for folder in ("service", "backends")]
_TENSORFLOW = find("tensorflow")
_PATIENCE = 400.0
"""Seconds in which a process imports TensorFlow on the busiest machine."""

pytestmark = [
    pytest.mark.time_limit(900),
    pytest.mark.slow,
    pytest.mark.needs(
        "tensorflow", "" if _TENSORFLOW else "there is no tensorflow: `make tools` says why"
    ),
]


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tensorflow") / "models"


@pytest.fixture(scope="module")
def answers(repository: Path) -> Any:
    """What models answer without a server; fills the repository."""
    ran = subprocess.run(
        [_TENSORFLOW, str(_ANSWERS), str(repository)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, _SOURCES))},
        capture_output=True,
        text=True,
        timeout=_PATIENCE,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


@pytest.fixture(scope="module")
def server(
    answers: Any, repository: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    """Explicit, as each model is a process that imports TensorFlow."""
    log = tmp_path_factory.mktemp("log") / "log"
    python = f"--backend-config=tensorflow,python={_TENSORFLOW}"
    with serving(repository, log, "--model-control-mode=explicit", python) as served:
        yield served


@pytest.fixture(scope="module")
def client(server: Served) -> Iterator[grpcclient.InferenceServerClient]:
    with grpcclient.InferenceServerClient(server.grpc) as client:
        yield client


def ask(client: grpcclient.InferenceServerClient, model: str, **inputs: Any) -> Any:
    """Load the model if it is not there, and infer."""
    if not client.is_model_ready(model):
        client.load_model(model, client_timeout=_PATIENCE)
    tensors = []
    for name, (kind, array) in inputs.items():
        tensor = grpcclient.InferInput(name, list(array.shape), kind)
        tensor.set_data_from_numpy(array)
        tensors.append(tensor)
    return client.infer(model, tensors, client_timeout=_PATIENCE)


def fp32(*values: float, rows: int = 1) -> tuple[str, Any]:
    return "FP32", np.tile(np.array(values, np.float32), (rows, 1))


# -- without a server ------------------------------------------------------------------------------


@pytest.mark.contract("B-15")
def test_the_graph_of_a_tag_is_served(answers: Any) -> None:
    assert answers["tagged"] == {"y": [[4, 5]]}
    assert answers["untagged"]["error"].startswith(
        "unable to load model 'untagged', expected 'serve' tag"
    )


def test_bfloat16_is_served(answers: Any) -> None:
    assert answers["halved"] == {"y": [[0x3FC0, 0x4020]]}  # 1.5 and 2.5


@pytest.mark.contract("B-15", "R-17")
def test_a_graphdef_has_the_tensors_that_are_declared(answers: Any) -> None:
    """Another placeholder may be left out, and a node may have several outputs."""
    assert answers["graph"] == {"y": [[6, 7]], "halves:1": [[2]]}


def test_an_output_that_a_graphdef_does_not_have_is_refused(answers: Any) -> None:
    text = "unexpected inference output 'z' for model 'unknown', whose graph has no such node"
    assert answers["unknown"] == {"error": text}


@pytest.mark.contract("B-15")
def test_operators_of_a_file_run_first(answers: Any) -> None:
    """The file of the version goes before that of the model; any rank is that declared."""
    assert answers["initialised"] == {"y": [[6, 7]]}
    error = answers["uninitialised"]["error"]
    assert error.startswith("TensorFlow error: node 'y/ReadVariableOp': Could not find variable v.")


def test_a_file_that_is_no_graph_is_refused(answers: Any) -> None:
    assert "failed to load model 'garbage': " in answers["garbage"]["error"]


# -- behind a server -------------------------------------------------------------------------------


@pytest.mark.contract("AC-13", "B-15", "R-17")
def test_the_default_signature_completes_the_configuration(
    client: grpcclient.InferenceServerClient,
) -> None:
    answer = ask(client, "completed", x=fp32(1, 2, rows=3))
    assert answer.as_numpy("y").tolist() == [[2, 4]] * 3
    config = client.get_model_config("completed").config
    assert (config.platform, config.max_batch_size) == ("tensorflow_savedmodel", 4)
    assert [(t.name, list(t.dims)) for t in (*config.input, *config.output)] == [
        ("x", [2]),
        ("y", [2]),
    ]


@pytest.mark.contract("B-15")
def test_a_signature_with_strings_and_a_table_is_served(
    client: grpcclient.InferenceServerClient,
) -> None:
    """What OpenVINO reads none of."""
    text = np.array([[b"green"], [b"blue"]], object)
    answer = ask(client, "upper", text=("BYTES", text))
    assert answer.as_numpy("shout").tolist() == [[b"GREEN"], [b"BLUE"]]
    assert answer.as_numpy("number").tolist() == [[2], [-1]]


def test_requests_are_joined_to_batches(client: grpcclient.InferenceServerClient) -> None:
    ask(client, "completed", x=fp32(0, 0))  # loaded
    with ThreadPoolExecutor(8) as pool:
        answers = list(
            pool.map(lambda n: ask(client, "completed", x=fp32(n, n)).as_numpy("y"), range(64))
        )
    assert [answer[0, 0] for answer in answers] == [2 * n for n in range(64)]
    [statistics] = client.get_inference_statistics("completed").model_stats
    assert statistics.execution_count < statistics.inference_count


def test_a_folder_is_served_without_a_repository(
    answers: Any, repository: Path, tmp_path: Path
) -> None:
    """On TensorFlow, as strings and a table show; the signature is that of the file beside it."""
    folder = tmp_path / "author" / "words"
    shutil.copytree(repository / "upper" / "1" / "model.savedmodel", folder)
    (folder.parent / "words.pbtxt").write_text(
        'parameters { key: "TF_SIGNATURE_DEF" value { string_value: "upper" } }'
        " instance_group { kind: KIND_CPU count: 1 }"
    )
    python = f"--backend-config=tensorflow,python={_TENSORFLOW}"
    with (
        serving(None, tmp_path / "log", str(folder), python, timeout=_PATIENCE) as served,
        grpcclient.InferenceServerClient(served.grpc) as client,
    ):
        answer = ask(client, "words", text=("BYTES", np.array([[b"red"]], object)))
        assert answer.as_numpy("shout").tolist() == [[b"RED"]]
        assert answer.as_numpy("number").tolist() == [[1]]


_BAD = [
    ({"x": ("FP64", np.ones((1, 2)))}, "data-type is 'FP64'"),
    ({"x": ("FP32", np.ones((1, 3), np.float32))}, "unexpected shape for input 'x'"),
    ({"x": ("FP32", np.ones(2, np.float32))}, "unexpected shape for input 'x'"),
    ({"z": fp32(1, 2)}, "unexpected inference input 'z'"),
    ({"x": fp32(1, 2), "z": fp32(1, 2)}, "expected 1 inputs but got 2"),
    ({"x": fp32(1, 2, rows=5)}, "batch-size must be"),
]


@pytest.mark.parametrize(("inputs", "why"), _BAD, ids=[why for _, why in _BAD])
def test_wrong_requests_are_refused(
    client: grpcclient.InferenceServerClient, inputs: dict[str, Any], why: str
) -> None:
    with pytest.raises(InferenceServerException, match=why) as refused:
        ask(client, "completed", **inputs)
    assert refused.value.status() == "StatusCode.INVALID_ARGUMENT"


def _damages(folder: Path) -> Iterator[str]:
    """Each file of a SavedModel in turn cut in the middle, and empty; what was done."""
    files = [folder / "saved_model.pb", *sorted((folder / "variables").iterdir())]
    for file in files:
        whole = file.read_bytes()
        for kept in (len(whole) // 2, 0):
            file.write_bytes(whole[:kept])
            yield f"{file.name} has {kept} bytes"
        file.write_bytes(whole)


def test_damaged_folders_are_refused_and_harm_nobody(
    client: grpcclient.InferenceServerClient, repository: Path
) -> None:
    shutil.copytree(repository / "completed", repository / "damaged")
    loaded, said = [], []
    for what in _damages(repository / "damaged" / "1" / "model.savedmodel"):
        try:
            client.load_model("damaged", client_timeout=_PATIENCE)
            loaded.append(what)
        except InferenceServerException as refused:
            said.append(str(refused))
        assert ask(client, "completed", x=fp32(1, 2)).as_numpy("y").tolist() == [[2, 4]]
    assert loaded == []
    assert all("'damaged'" in text for text in said), said


@pytest.mark.contract("B-15")
async def test_a_network_answers_as_it_does_on_openvino(
    client: grpcclient.InferenceServerClient,
    repository: Path,
    basic_pitch: Path,
    open_instance: OpenInstance,
    version: Path,
) -> None:
    """The SavedModel on TensorFlow, and the same network as TFLite on OpenVINO."""
    pytest.importorskip("openvino", reason="OpenVINO is not installed")
    shutil.copytree(basic_pitch / "nmp", repository / "pitch" / "1" / "model.savedmodel")
    sound = np.random.default_rng(7).normal(0, 0.1, (2, 43844, 1)).astype(np.float32)
    answer = ask(client, "pitch", input_2=("FP32", sound))
    shutil.copy(basic_pitch / "nmp.tflite", version / "model.tflite")
    bare = ModelConfig("pitch", default_model_filename="model.tflite", max_batch_size=2)
    config = await OpenVinoBackend.complete_config(bare, version, {})
    backend = await open_instance(OpenVinoBackend, config)
    feed: dict[str, Any] = {config.input[0].name: sound}
    (outcome,) = await backend.execute([graphs.request(**feed)])

    def ordered(arrays: list[Any]) -> list[Any]:
        return sorted(arrays, key=lambda array: (array.shape, float(array.sum())))

    found = ordered([answer.as_numpy(name) for name in ("contour", "note", "onset")])
    others = ordered([graphs.tensor(outcome, tensor.name).numpy() for tensor in config.output])
    for one, two in zip(found, others, strict=True):
        assert_allclose(one, two, rtol=0, atol=5e-6)
