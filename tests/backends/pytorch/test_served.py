"""Models on PyTorch behind a real server, asked by tritonclient."""

from __future__ import annotations

import json
import os
import re
import shutil
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
from tritonclient.utils import InferenceServerException

from backends.vllm.test_real_engine import PYTHON
from harness.serving import Served, serving, start, wait_until

_MODELS = Path(__file__).with_name("make_models.py")
_PATIENCE = 400.0
"""Seconds in which a process imports PyTorch on the busiest machine."""

pytestmark = [
    pytest.mark.time_limit(900),
    pytest.mark.slow,
    pytest.mark.needs("torch", None if PYTHON.exists() else f"no {PYTHON}: make vllm"),
]


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pytorch") / "models"
    subprocess.run([PYTHON, _MODELS, folder], check=True, timeout=_PATIENCE)
    return folder


@pytest.fixture(scope="module")
def server(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Explicit, as each model is a process that imports PyTorch."""
    log = tmp_path_factory.mktemp("log") / "log"
    python = f"--backend-config=pytorch,python={PYTHON}"
    flags = "--model-control-mode=explicit", "--allow-unsafe-models=true", python
    with serving(repository, log, *flags) as served:
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
        client.load_model(model, client_timeout=_PATIENCE)
    tensors = []
    for name, (kind, array) in inputs.items():
        tensor = grpcclient.InferInput(name, list(array.shape), kind)
        tensor.set_data_from_numpy(array)
        tensors.append(tensor)
    return client.infer(model, tensors, client_timeout=_PATIENCE)


def fp32(*values: float, rows: int = 1) -> tuple[str, Any]:
    return "FP32", np.tile(np.array(values, np.float32), (rows, 1))


A, B = fp32(5, 6, 7, 8), fp32(1, 2, 3, 4)


@pytest.mark.contract("B-08")
def test_state_of_a_sequence_is_kept(client: grpcclient.InferenceServerClient) -> None:
    client.load_model("counted", client_timeout=_PATIENCE)
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


@pytest.mark.contract("R-15")
def test_document_s_model_prints_its_shape(server: Served, repository: Path) -> None:
    """The client of the document (S067), over both protocols, and the network's own numbers."""
    x = np.linspace(-1, 1, 128, dtype=np.float32).reshape(1, 128)
    expected = json.loads((repository / "expected.json").read_text())
    with httpclient.InferenceServerClient(server.http, network_timeout=_PATIENCE) as client:
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


def test_pickled_module_is_served_where_models_may_be_unsafe(
    client: grpcclient.InferenceServerClient,
) -> None:
    assert ask(client, "pickled", x=A).as_numpy("y").tolist() == [[5, 6, 7, 8]]


def test_damaged_file_is_refused(client: grpcclient.InferenceServerClient) -> None:
    with pytest.raises(InferenceServerException, match="failed to load model 'truncated': "):
        client.load_model("truncated", client_timeout=_PATIENCE)


def test_killed_process_harms_nobody_else(
    server: Served, client: grpcclient.InferenceServerClient
) -> None:
    ask(client, "by_name", left=A, right=B)
    before = set(server.family())
    client.load_model("keyed", client_timeout=_PATIENCE)
    [process] = set(server.family()) - before
    os.kill(process, signal.SIGKILL)
    assert ask(client, "by_name", left=A, right=B).as_numpy("sum")[0, 0] == 6
    ready = f"http://{server.http}/v2/models/keyed/ready"
    wait_until(lambda: httpx.get(ready).status_code == 200, _PATIENCE)
    assert ask(client, "keyed", A=A, B=B).as_numpy("OUT")[0, 0] == 4


def test_model_that_crashes_harms_nobody_else(
    server: Served, client: grpcclient.InferenceServerClient
) -> None:
    ask(client, "by_name", left=A, right=B)
    assert ask(client, "unruly", x=A).as_numpy("y").tolist() == [[5, 6, 7, 8]]
    with pytest.raises(InferenceServerException, match="was killed by signal 11") as refused:
        ask(client, "unruly", x=fp32(-1, 0, 0, 0))
    assert refused.value.status() == "StatusCode.UNAVAILABLE"
    assert ask(client, "by_name", left=A, right=B).as_numpy("sum")[0, 0] == 6
    wait_until(lambda: client.is_model_ready("unruly"), _PATIENCE)
    assert ask(client, "unruly", x=A).as_numpy("y").tolist() == [[5, 6, 7, 8]]


def test_model_that_leaks_comes_to_its_limit_alone(
    client: grpcclient.InferenceServerClient,
) -> None:
    """A GiB each time, of the six that its process may have."""
    ask(client, "by_name", left=A, right=B)

    def leak() -> None:
        for _ in range(6):
            ask(client, "unruly", x=fp32(101, 0, 0, 0))

    with pytest.raises(InferenceServerException, match=r"PyTorch execute failure: .*allocate"):
        leak()
    assert ask(client, "unruly", x=A).as_numpy("y").tolist() == [[5, 6, 7, 8]]
    assert ask(client, "by_name", left=A, right=B).as_numpy("sum")[0, 0] == 6


_BAD = [
    ({"left": A, "right": ("FP64", A[1].astype(np.float64))}, "data-type is 'FP64'"),
    ({"left": A, "right": ("FP32", A[1][:, :3])}, "unexpected shape for input 'right'"),
    ({"left": A, "right": ("FP32", A[1][0])}, "batch size does not match other inputs"),
    ({"left": A}, "expected 2 inputs but got 1"),
    ({"left": A, "right": B, "more": B}, "expected 2 inputs but got 3"),
    ({"left": A, "wrong": B}, "unexpected inference input 'wrong'"),
    ({"left": fp32(1, 2, 3, 4, rows=9), "right": fp32(1, 2, 3, 4, rows=9)}, "batch-size must be"),
]


@pytest.mark.parametrize(("inputs", "why"), _BAD, ids=[why for _, why in _BAD])
def test_wrong_requests_are_refused(
    client: grpcclient.InferenceServerClient, inputs: dict[str, Any], why: str
) -> None:
    with pytest.raises(InferenceServerException, match=why) as refused:
        ask(client, "by_name", **inputs)
    assert refused.value.status() == "StatusCode.INVALID_ARGUMENT"


def test_numbers_that_are_none_pass(
    client: grpcclient.InferenceServerClient,
) -> None:
    found = ask(client, "by_name", left=fp32(np.nan, np.inf, -np.inf, 0), right=B)
    np.testing.assert_array_equal(found.as_numpy("sum"), [[np.nan, np.inf, -np.inf, 4]])


# -- files that are given --------------------------------------------------------------------------


def test_files_are_served_without_a_repository(repository: Path, tmp_path: Path) -> None:
    """A package of `torch.export` as it is; TorchScript with its tensors beside it."""
    folder = tmp_path / "author"
    folder.mkdir()
    shutil.copy(repository / "exported" / "1" / "model.pt2", folder / "sums.pt2")
    shutil.copy(repository / "by_name" / "1" / "model.pt", folder / "named.pt")
    python = f"--backend-config=pytorch,python={PYTHON}"
    files = [f"{folder}/sums.pt2", f"{folder}/named.pt"]
    lacking = start(None, tmp_path / "refusal", *files, python)
    assert lacking.wait(60) == 1
    said = (tmp_path / "refusal").read_text()
    assert "named.pt' does not say how it is served" in said
    assert re.findall(r'put \[ { name: "(\w+)"', said) == [
        "left",
        "right",
        "output__0",
        "output__1",
    ]
    tensors = [
        f'{{ name: "{name}" data_type: TYPE_FP32 dims: [ 4 ] }}'
        for name in ("left", "right", "sum", "difference")
    ]
    (folder / "named.pbtxt").write_text(
        f"max_batch_size: 8 input [ {tensors[0]}, {tensors[1]} ] output [ {tensors[2]},"
        f" {tensors[3]} ]"
    )
    with (
        serving(None, tmp_path / "log", *files, python, timeout=_PATIENCE) as served,
        grpcclient.InferenceServerClient(served.grpc) as client,
    ):
        assert ask(client, "named", left=A, right=B).as_numpy("difference").tolist() == [[4] * 4]
        described = client.get_model_metadata("sums", as_json=True)
        given = {tensor["name"]: x for tensor, x in zip(described["inputs"], (A, B), strict=True)}
        answer = ask(client, "sums", **given)
        outputs = [answer.as_numpy(each["name"])[0, 0] for each in described["outputs"]]
    assert sorted(outputs) == [4, 6]
