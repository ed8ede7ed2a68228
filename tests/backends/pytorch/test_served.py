"""Models on PyTorch behind a real server, asked by tritonclient."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import tritonclient.grpc as grpcclient
import tritonclient.http as httpclient
from ml_dtypes import bfloat16
from tritonclient.utils import InferenceServerException

from backends.vllm.test_real_engine import PYTHON
from harness.serving import Served, serving, wait_until

_MODELS = Path(__file__).with_name("make_models.py")
_REFUSED = {
    "two_dictionaries": "Multiple inputs of kind DictType were detected. Only a single input of",
    "number": "An input of type 'IntType' was detected in the model. Only a single input of type",
    "too_many": "configuration expects 2 inputs, model provides 1",
    "damaged": "failed to load model 'damaged': ",
    "truncated": "failed to load model 'truncated': ",
    "pickled": "would run code while it is read; save it with torch.jit.save or torch.export.save",
    "weights_only": "has no model but weights; put the module that they belong to into model.py",
    "hostile": "failed to load model 'hostile': ",
    "hostile_archive": "would run code while it is read",
    "without_file": "/without_file/1/model.pt' for model instance 'without_file'",
    "without_tensors": "without_tensors",
}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.needs("torch", None if PYTHON.exists() else f"no {PYTHON}: make vllm"),
]


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pytorch") / "models"
    subprocess.run([PYTHON, _MODELS, folder], check=True, timeout=200)
    return folder


@pytest.fixture(scope="module")
def server(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Explicit, as each model is a process that imports PyTorch."""
    log = tmp_path_factory.mktemp("log") / "log"
    python = f"--backend-config=pytorch,python={PYTHON}"
    with serving(repository, log, "--model-control-mode=explicit", python) as served:
        yield served


@pytest.fixture(scope="module")
def client(server: Served) -> Iterator[grpcclient.InferenceServerClient]:
    with grpcclient.InferenceServerClient(server.grpc) as client:
        yield client


def ask(
    client: grpcclient.InferenceServerClient, model: str, **inputs: Any
) -> grpcclient.InferResult:
    """Load the model if it is not there, and infer; `__` in names stands for itself."""
    if not client.is_model_ready(model):
        client.load_model(model, client_timeout=120)
    tensors = []
    for name, (kind, array) in inputs.items():
        tensor = grpcclient.InferInput(name, list(array.shape), kind)
        tensor.set_data_from_numpy(array)
        tensors.append(tensor)
    return client.infer(model, tensors, client_timeout=60)


def fp32(*values: float, rows: int = 1) -> tuple[str, Any]:
    return "FP32", np.tile(np.array(values, np.float32), (rows, 1))


A, B = fp32(5, 6, 7, 8), fp32(1, 2, 3, 4)


@pytest.mark.contract("B-08")
@pytest.mark.parametrize(
    ("model", "inputs", "outputs"),
    [
        ("by_name", {"right": B, "left": A}, ("sum", "difference")),
        ("by_index", {"A__0": A, "B__1": B}, ("S__0", "D__1")),
        ("by_order", {"q": B, "p": A}, ("s", "d")),
        ("exported", {"left": A, "right": B}, ("RESULT[0]", "RESULT[1]")),
    ],
)
def test_tensors_are_found_by_name_index_order_or_place(
    client: grpcclient.InferenceServerClient,
    model: str,
    inputs: dict[str, Any],
    outputs: tuple[str, str],
) -> None:
    result = ask(client, model, **inputs)
    assert [result.as_numpy(name).tolist() for name in outputs] == [
        [[6, 8, 10, 12]],
        [[4, 4, 4, 4]],
    ]


@pytest.mark.contract("B-08")
def test_one_dictionary_has_the_names_of_the_configuration_as_keys(
    client: grpcclient.InferenceServerClient,
) -> None:
    assert ask(client, "keyed", B=B, A=A).as_numpy("OUT").tolist() == [[4, 4, 4, 4]]


@pytest.mark.contract("B-10")
def test_strings_are_lists_of_one_dimension(client: grpcclient.InferenceServerClient) -> None:
    texts = ("BYTES", np.array(["a", "ü"], object))
    found = [text.decode() for text in ask(client, "texts", T=texts).as_numpy("U")]
    assert found == ["a!", "ü!"]
    with pytest.raises(InferenceServerException, match=r"unexpected shape|1 dimensional"):
        ask(client, "texts", T=("BYTES", np.array([["a"]], object)))


def test_model_that_writes_to_its_input_does_not_write_to_the_clients_memory(
    client: grpcclient.InferenceServerClient,
) -> None:
    for _ in range(2):
        assert ask(client, "in_place", x=A).as_numpy("y").tolist() == [[10, 12, 14, 16]]


def test_bfloat16_goes_through(client: grpcclient.InferenceServerClient) -> None:
    values = np.array([[1, -2, 0.5, 3]], bfloat16)
    assert ask(client, "bf16", x=("BF16", values)).as_numpy("y").tolist() == values.tolist()


@pytest.mark.contract("B-08")
def test_state_of_a_sequence_is_kept(client: grpcclient.InferenceServerClient) -> None:
    client.load_model("counted", client_timeout=120)
    totals = []
    for turn in range(3):
        tensor = grpcclient.InferInput("IN__0", [1, 4], "FP32")
        tensor.set_data_from_numpy(A[1])
        result = client.infer(
            "counted", [tensor], sequence_id=7, sequence_start=turn == 0, sequence_end=turn == 2
        )
        totals.append(result.as_numpy("OUT__0")[0, 0])
    assert totals == [5, 10, 15]


@pytest.mark.contract("B-12", "C-05")
def test_module_in_python_has_its_weights(client: grpcclient.InferenceServerClient) -> None:
    result = ask(client, "in_python", x=fp32(1, 2, 3, 4, rows=2))
    assert result.as_numpy("y").tolist() == [[10, 20]] * 2
    assert result.as_numpy("total").tolist() == [[10]] * 2


@pytest.mark.contract("B-08")
def test_wrong_types_and_lists_of_results_are_said(
    client: grpcclient.InferenceServerClient,
) -> None:
    with pytest.raises(
        InferenceServerException, match="expects datatype TYPE_INT64 for output 'y'"
    ):
        ask(client, "wrong_type", x=A)
    with pytest.raises(InferenceServerException, match="output must be of type Tensor, List"):
        ask(client, "listed", x=A)


def test_document_s_model_prints_its_shape(server: Served, repository: Path) -> None:
    """The client of the document (S067), over both protocols, and the network's own numbers."""
    x = np.linspace(-1, 1, 128, dtype=np.float32).reshape(1, 128)
    expected = json.loads((repository / "expected.json").read_text())
    with httpclient.InferenceServerClient(server.http) as client:
        client.load_model("my_model")
        tensor = httpclient.InferInput("input__0", x.shape, "FP32")
        tensor.set_data_from_numpy(x)
        output = client.infer("my_model", [tensor]).as_numpy("output__0")
    assert output.shape == (1, 10)
    np.testing.assert_allclose(output, expected, atol=1e-6)


def test_requests_are_joined_to_batches(
    server: Served, client: grpcclient.InferenceServerClient
) -> None:
    ask(client, "by_index", A__0=A, B__1=B)  # loaded
    with ThreadPoolExecutor(8) as pool:
        results = list(
            pool.map(
                lambda n: ask(client, "by_index", A__0=fp32(n, n, n, n), B__1=B).as_numpy("S__0"),
                range(64),
            )
        )
    assert [result[0, 0] for result in results] == [n + 1 for n in range(64)]
    [statistics] = client.get_inference_statistics("by_index").model_stats
    assert statistics.execution_count < statistics.inference_count


@pytest.mark.contract("B-08", "B-12", "AC-08")
@pytest.mark.parametrize("model", _REFUSED)
def test_what_cannot_be_served_is_refused_with_the_reason(
    client: grpcclient.InferenceServerClient, repository: Path, model: str
) -> None:
    with pytest.raises(InferenceServerException) as caught:
        client.load_model(model, client_timeout=120)
    text = str(caught.value)
    assert _REFUSED[model] in text
    assert "Exception raised from" not in text
    assert not (repository / "hacked").exists()


@pytest.mark.contract("AC-08")
def test_configurations_are_not_completed(server: Served) -> None:
    text = "skipping model configuration auto-complete for 'without_tensors': not supported for"
    assert text in server.log.read_text()


def test_killed_process_harms_nobody_else(
    server: Served, client: grpcclient.InferenceServerClient
) -> None:
    ask(client, "by_name", left=A, right=B)
    before = set(server.family())
    ask(client, "keyed", A=A, B=B)
    client.unload_model("keyed")
    wait_until(lambda: set(server.family()) <= before)
    client.load_model("keyed", client_timeout=120)
    [process] = set(server.family()) - before
    os.kill(process, signal.SIGKILL)
    assert ask(client, "by_name", left=A, right=B).as_numpy("sum")[0, 0] == 6
    wait_until(lambda: httpx.get(f"http://{server.http}/v2/models/keyed/ready").status_code == 200)
    assert ask(client, "keyed", A=A, B=B).as_numpy("OUT")[0, 0] == 4
