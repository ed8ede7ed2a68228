"""Settings of the command line by what they change in answers, most of them on one server."""

from __future__ import annotations

import asyncio
import json
import re
from base64 import b64encode
from collections.abc import Iterator, Sequence
from pathlib import Path

import httpx
import pytest

from app.python_models import write_python_model
from app.test_start import failed
from conformance.python_models.repository import parameter
from harness.serving import Served, serving

pytestmark = pytest.mark.slow

_SAME = """
backend: "{backend}"
input {{ name: "X" data_type: TYPE_{kind} dims: [ -1 ] }}
output {{ name: "Y" data_type: TYPE_{kind} dims: [ -1 ] }}
{more}
"""
_GREEDY = 'instance_group { rate_limiter { resources { name: "R" count: 2 } } }'
_FREE = "instance_group { kind: KIND_CPU }"
# Fails at its first load; waits for the file `gate` where it is given anything but 0.
_BACKEND = """
import os
import time
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.set_max_batch_size(7)
        return config

    def initialize(self, args):
        self.folder = args["model_repository"]
        with open(os.path.join(self.folder, "starts"), "a") as file:
            file.write(os.environ.get("OF_THE_OPERATOR", "-"))
            first = file.tell() == 1
        if first:
            raise RuntimeError("not yet")

    def execute(self, requests):
        while not os.path.exists(os.path.join(self.folder, "gate")):
            time.sleep(0.002)
        inputs = [pb_utils.get_input_tensor_by_name(each, "X").as_numpy() for each in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", each)]) for each in inputs]
"""


def _write(
    repository: Path, name: str, backend: str = "identity", kind: str = "FP32", more: str = ""
) -> Path:
    folder = repository / name
    (folder / "1").mkdir(parents=True)
    text = _SAME.format(backend=backend, kind=kind, more=more)
    (folder / "config.pbtxt").write_text(text)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("settings")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Served]:
    models, backend = folder / "models", folder / "backends" / "own"
    _write(models, "words", kind="STRING")
    _write(models, "numbers")
    _write(models, "devices", more="instance_group { kind: KIND_GPU }")
    _write(models, "apart", more=parameter("penstock.host", "process"))
    _write(models, "greedy", more=_GREEDY)
    _write(models, "passive", more=f"{_FREE} {_GREEDY.replace('{', '{ passive: true', 1)}")
    _write(models, "waits", backend="own")
    chosen = _write(models, "chosen") / "configs" / "other.pbtxt"
    chosen.parent.mkdir()
    chosen.write_text(
        "max_batch_size: 3\n" + _SAME.format(backend="identity", kind="FP32", more="")
    )
    backend.mkdir(parents=True)
    (backend / "model.py").write_text(_BACKEND)
    flags = (
        *("--model-control-mode=explicit", "--load-model=*", "--exit-on-error=false"),
        *("--strict-readiness=false", "--model-load-retry-count=1", "--model-config-name=other"),
        *("--disable-auto-complete-config", f"--backend-directory={backend.parent}"),
        *("--rate-limit=execution_count", "--rate-limit-resource=R:1:0"),
        *("--max-bytes-elements=20000", "--max-pending-requests=1", "--http-max-body-size=200000"),
        *("--allow-client-shm=true", "--client-shm-prefix=mine", "--allow-model-upload=true"),
        *("--allow-cpu-metrics=false", "--metrics-config=counter_latencies=false"),
        *("--allow-openai=false", "--model-env=OF_THE_OPERATOR", "--allow-engine-control=true"),
        *("--allow-sagemaker=true", "--sagemaker-port=0", f"--sagemaker-model-root={folder}/root"),
        *("--cpu-only", "--exit-timeout-secs=7"),
        *("--allow-vertex-ai=true", "--vertex-ai-port=0", "--vertex-ai-default-model=chosen"),
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OF_THE_OPERATOR", "o")
        patch.setenv("AIP_PREDICT_ROUTE", "/predict")
        patch.setenv("AIP_HEALTH_ROUTE", "/health")
        with serving(models, folder / "log", *flags) as served:
            yield served


@pytest.fixture(scope="module")
def client(server: Served) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"http://{server.http}/v2", timeout=60) as client:
        yield client


def _tensor(kind: str, *values: object) -> dict[str, object]:
    return {"inputs": [{"name": "X", "datatype": kind, "shape": [len(values)], "data": values}]}


def _reason(client: httpx.Client, model: str) -> str:
    index = client.post("/repository/index").json()
    return str(next(each for each in index if each["name"] == model).get("reason"))


def test_a_configuration_has_the_name_that_was_chosen(client: httpx.Client) -> None:
    assert client.get("/models/chosen/config").json()["max_batch_size"] == 3


def test_a_configuration_is_not_completed_where_that_is_off(client: httpx.Client) -> None:
    assert client.get("/models/waits/config").json()["max_batch_size"] == 0


def test_readiness_does_without_models_that_failed(client: httpx.Client) -> None:
    assert client.get("/health/ready").status_code == 200


def test_a_resource_is_as_large_as_was_said(client: httpx.Client) -> None:
    assert 'Resource count for "R" is limited to 1' in _reason(client, "greedy")


def test_an_instance_that_is_passive_needs_no_resources(client: httpx.Client) -> None:
    assert client.get("/models/passive/ready").status_code == 200


def test_a_backend_of_the_directory_is_loaded_at_the_second_attempt(
    client: httpx.Client, folder: Path
) -> None:
    assert client.get("/models/waits/ready").status_code == 200
    assert (folder / "models" / "waits" / "starts").exists()


def test_a_model_process_has_variables_that_the_operator_names(
    client: httpx.Client, folder: Path
) -> None:
    assert (folder / "models" / "waits" / "starts").read_text() == "oo"


def _binary(client: httpx.Client, model: str, kind: str, size: int) -> httpx.Response:
    """The answer to a tensor of so many elements, all of them 0 or empty, as bytes."""
    parameters = {"binary_data_size": size * 4}
    tensor = {"name": "X", "datatype": kind, "shape": [size], "parameters": parameters}
    head = json.dumps({"inputs": [tensor]}).encode()
    headers = {"inference-header-content-length": str(len(head))}
    return client.post(f"/models/{model}/infer", content=head + bytes(size * 4), headers=headers)


def test_strings_of_a_tensor_are_bounded(client: httpx.Client) -> None:
    assert _binary(client, "words", "BYTES", 20_000).status_code == 200
    refused = _binary(client, "words", "BYTES", 20_001)
    assert "has more than 20000 elements of BYTES" in refused.json()["error"]


def test_a_body_has_its_largest_size(client: httpx.Client) -> None:
    assert _binary(client, "numbers", "FP32", 40_000).status_code == 200
    assert "200000" in _binary(client, "numbers", "FP32", 60_000).json()["error"]


def test_names_of_shared_memory_begin_as_was_said(client: httpx.Client) -> None:
    def register(key: str) -> str:
        body = {"key": key, "offset": 0, "byte_size": 64}
        answer = client.post("/systemsharedmemory/region/r/register", json=body)
        return str(answer.json()["error"])

    assert "Unable to open" in register("/mine_that_is_not_there")
    assert "mine" in register("/other")


def test_clients_may_bring_models(client: httpx.Client) -> None:
    files = {"file:1/note": b64encode(b"x").decode(), "config": _SAME_JSON}
    assert client.post("/repository/models/up/load", json={"parameters": files}).status_code == 200


_SAME_JSON = """{"backend": "identity",
 "input": [{"name": "X", "data_type": "TYPE_FP32", "dims": [1]}],
 "output": [{"name": "Y", "data_type": "TYPE_FP32", "dims": [1]}]}"""


def test_commands_to_engines_are_taken(client: httpx.Client) -> None:
    answer = client.post("/models/chosen/engine/sleep")
    assert "does not know the action 'sleep'" in answer.json()["error"]


def test_openai_has_no_routes_where_it_is_off(server: Served) -> None:
    assert httpx.get(f"http://{server.http}/v1/models").status_code == 404


def test_the_page_leaves_out_what_is_off(server: Served, client: httpx.Client) -> None:
    page = httpx.get(server.metrics).text
    assert "nv_inference_count" in page
    assert "nv_cpu_" not in page
    assert "nv_inference_request_duration_us" not in page


def _port(server: Served, cloud: str) -> int:
    found = re.search(rf"Started {cloud} HTTPService at \S+:(\d+)", server.log.read_text())
    assert found is not None
    return int(found[1])


def test_models_of_sagemaker_lie_where_the_operator_says(server: Served, folder: Path) -> None:
    body = {"model_name": "m", "url": "/elsewhere"}
    answer = httpx.post(f"http://127.0.0.1:{_port(server, 'Sagemaker')}/models", json=body)
    assert f"Models must lie below '{folder}/root'" in answer.json()["error"]


def test_vertex_asks_its_default_model(server: Served) -> None:
    body = {"inputs": [{"name": "X", "datatype": "FP32", "shape": [1, 1], "data": [4]}]}
    answer = httpx.post(f"http://127.0.0.1:{_port(server, 'Vertex AI')}/predict", json=body)
    assert answer.json()["model_name"] == "chosen"


async def test_only_so_many_requests_wait(server: Served, folder: Path) -> None:
    """One runs, one may wait, and the third is refused."""
    url = f"http://{server.http}/v2/models/waits/infer"
    async with httpx.AsyncClient(timeout=60) as client:
        asked = [asyncio.ensure_future(client.post(url, json=_tensor("FP32", 1))) for _ in range(3)]
        done, _ = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
        (folder / "models" / "waits" / "gate").touch()
        statuses = [(await each).status_code for each in asked]
    assert [each.result().status_code for each in done] == [503]
    assert sorted(statuses) == [200, 200, 503]


def test_a_group_of_gpus_is_served_on_the_cpu(client: httpx.Client) -> None:
    assert client.get("/models/devices/ready").status_code == 200


def test_a_model_has_a_process_of_its_own_where_it_asks_for_one(server: Served) -> None:
    page = httpx.get(server.metrics).text
    assert 'penstock_model_process_restarts_total{model="apart"' in page


@pytest.mark.last
def test_the_exit_has_its_time(server: Served) -> None:
    server.stop()
    assert "Timeout 7: Found" in server.log.read_text()


@pytest.mark.parametrize(
    ("levels", "left"), [(("info", "warning"), ["E"]), (("error",), ["I", "W"])], ids=str
)
def test_levels_of_the_log_may_be_off(
    tmp_path: Path, levels: Sequence[str], left: Sequence[str]
) -> None:
    broken = write_python_model(tmp_path / "models", "broken", "import nope")
    flags = (f"--log-{level}=false" for level in levels)
    lines = failed(broken.parent, tmp_path / "log", "--enable-peer-access=false", *flags)
    assert {line[0] for line in lines if re.match(r"[A-Z]\d{4} ", line)} == {*left}


def test_lines_of_the_log_may_go_unquoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_SERVER_ESCAPE_LOG_MESSAGES", "0")
    broken = write_python_model(tmp_path / "models", "broken", "import nope")
    lines = failed(broken.parent, tmp_path / "log")
    assert any(line.endswith("] loading: broken:1") for line in lines)
