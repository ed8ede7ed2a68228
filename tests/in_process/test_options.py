"""Options of an in-process server and of its endpoints, by what they change."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
from tritonclient.utils import InferenceServerException

import penstock.in_process as tritonserver
from penstock.in_process.frontend import KServeGrpc, KServeHttp
from penstock_client.client import Client
from rpc.certificates import write_certificates

_SAME = """
backend: "{backend}"
input {{ name: "X" data_type: TYPE_FP32 dims: [ -1 ] }}
output {{ name: "Y" data_type: TYPE_FP32 dims: [ -1 ] }}
{more}
"""
_ONE = np.ones(1, np.float32)
_CODE = """
import os
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.set_max_batch_size(7)
        return config

    def initialize(self, args):
        began = os.path.join(args["model_repository"], "began")
        if not os.path.exists(began):
            open(began, "w").close()
            raise RuntimeError("not yet")

    def execute(self, requests):
        inputs = [pb_utils.get_input_tensor_by_name(each, "X").as_numpy() for each in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", each)]) for each in inputs]
"""


def _write(repository: Path, name: str = "same", backend: str = "identity", more: str = "") -> Path:
    (repository / name / "1").mkdir(parents=True)
    text = _SAME.format(backend=backend, more=more)
    (repository / name / "config.pbtxt").write_text(text)
    return repository


def _twice(server: tritonserver.Server) -> None:
    for _ in range(2):
        list(server.model("same").infer(inputs={"X": _ONE}))


@pytest.mark.contract("API-02")
@pytest.mark.parametrize(
    ("options", "shown", "hidden"),
    [
        ({"cpu_metrics": False}, "nv_inference_count", "nv_cpu_utilization"),
        ({"cpu_metrics": True}, "nv_cpu_utilization", ""),
        (
            {"metrics_configuration": {"": {"summary_latencies": "true"}}},
            "nv_inference_request_summary_us",
            "",
        ),
        (
            {"cache_config": {"local": {"size": 1 << 20}}},
            'nv_cache_num_hits_per_model{model="same",version="1"} 1',
            "",
        ),
    ],
)
def test_options_change_the_metrics_page(
    tmp_path: Path, options: dict[str, Any], shown: str, hidden: str
) -> None:
    _write(tmp_path, more="response_cache { enable: true }")
    with tritonserver.Server(model_repository=str(tmp_path), **options) as server:
        _twice(server)
        page = server.metrics()
    assert shown in page
    assert not hidden or hidden not in page


@pytest.mark.contract("API-02")
def test_resources_of_the_rate_limiter_are_those_of_the_options(tmp_path: Path) -> None:
    group = "rate_limiter { resources { name: 'R' count: 2 } }".replace("'", '"')
    _write(tmp_path, more=f"instance_group {{ kind: KIND_CPU {group} }}")
    few, enough = (tritonserver.RateLimiterResource("R", count, 0) for count in (1, 2))
    limited = {"rate_limiter_mode": tritonserver.RateLimitMode.EXEC_COUNT}
    start: dict[str, Any] = {"model_repository": str(tmp_path), **limited}
    with pytest.raises(tritonserver.InternalError, match='Resource count for "R" is limited to 1'):
        tritonserver.Server(rate_limiter_resources=[few], **start).start()
    with tritonserver.Server(rate_limiter_resources=[enough], **start) as server:
        assert server.model("same").ready()


@pytest.mark.contract("API-02")
@pytest.mark.slow
def test_a_load_is_tried_again_and_a_strict_configuration_not_completed(tmp_path: Path) -> None:
    _write(tmp_path, backend="python")
    (tmp_path / "same" / "1" / "model.py").write_text(_CODE)
    start: dict[str, Any] = {"model_load_retry_count": 1, "strict_model_config": True}
    with tritonserver.Server(model_repository=str(tmp_path), **start) as server:
        assert server.model("same").config()["max_batch_size"] == 0


@pytest.mark.contract("API-02")
def test_readiness_may_do_without_models_that_failed(tmp_path: Path) -> None:
    _write(tmp_path, backend="nowhere")
    start: dict[str, Any] = {"exit_on_error": False, "strict_readiness": False}
    server = tritonserver.Server(model_repository=str(tmp_path), **start).start()
    assert server.ready()
    server.stop()


@pytest.mark.contract("API-02")
@pytest.mark.slow
@pytest.mark.parametrize("as_setting", [False, True])
def test_backends_are_found_in_their_directory(tmp_path: Path, as_setting: bool) -> None:
    backends, folder = tmp_path / "backends", tmp_path / "backends" / "mine"
    folder.mkdir(parents=True)
    (folder / "model.py").write_text(
        _CODE.replace("(7)", "(0)").replace("not os.", "False and os.")
    )
    given: dict[str, Any] = {"backend_directory": str(backends)}
    if as_setting:
        given = {"backend_configuration": {"": {"backend-directory": str(backends)}}}
    repository = _write(tmp_path / "models", backend="mine")
    with tritonserver.Server(model_repository=str(repository), **given) as server:
        (response,) = server.model("same").infer(inputs={"X": _ONE})
        assert np.from_dlpack(response.outputs["Y"]).tolist() == [1.0]


@pytest.mark.contract("API-02")
@pytest.mark.usefixtures("log_as_it_was")
@pytest.mark.parametrize(
    ("options", "letters", "first"),
    [
        ({"log_error": True}, "E", r"E\d{4} "),
        ({"log_warn": True}, "WE", r"W\d{4} "),
        ({"log_info": True}, "IWE", r"[IW]\d{4} "),
        ({"log_verbose": 1}, "IWEV", r"[IWV]\d{4} "),
        (
            {"log_error": True, "log_format": tritonserver.LogFormat.ISO8601},
            "2",
            r"\d{4}-\d\d-\d\dT",
        ),
    ],
)
def test_the_log_has_the_levels_of_the_options(
    tmp_path: Path, options: dict[str, Any], letters: str, first: str
) -> None:
    _write(tmp_path / "models", backend="nowhere")
    log = tmp_path / "log"
    start: dict[str, Any] = {
        "model_repository": str(tmp_path / "models"),
        "exit_on_error": False,
        "exit_timeout": 7,
        "log_file": str(log),
        "enable_peer_access": False,
    }
    server = tritonserver.Server(**start, **options).start()
    assert server.live()
    server.stop()
    lines = log.read_text().splitlines()
    assert re.match(first, lines[0])
    assert {line[0] for line in lines if re.match(r"[IWEV]\d{4} |\d{4}-", line)} <= set(letters)
    assert ("--enable-peer-access has no effect" in log.read_text()) == ("W" in letters)
    assert ("Timeout 7: Found" in log.read_text()) == ("I" in letters)


@pytest.mark.contract("API-10")
@pytest.mark.parametrize("protocol", ["grpc", "http"])
async def test_headers_are_forwarded_as_an_endpoint_says(
    server: tritonserver.Server, protocol: str
) -> None:
    place: dict[str, Any] = {"address": "127.0.0.1", "port": 0}
    if protocol == "grpc":
        endpoint: Any = KServeGrpc(
            server, KServeGrpc.Options(**place, forward_header_pattern="x-.")
        )
    else:
        endpoint = KServeHttp(server, KServeHttp.Options(**place, header_forward_pattern="x-."))
    inputs: dict[str, Any] = {
        "text_input": "a",
        "sampling_parameters": json.dumps({"show": "parameters"}),
    }
    scheme = "http://" if protocol == "http" else ""
    with endpoint:
        url = f"{scheme}127.0.0.1:{endpoint.port}"
        async with Client(url, headers={"x-a": "1"}) as client:
            pieces = [each async for each in client.stream("story", inputs)]
    assert json.loads(pieces[0]["text_output"][0])["x-a"] == "1"


@pytest.mark.contract("API-10")
@pytest.mark.slow
@pytest.mark.parametrize("mutual", [False, True])
def test_an_endpoint_has_the_certificate_of_its_options(
    server: tritonserver.Server, tmp_path: Path, mutual: bool
) -> None:
    write_certificates(tmp_path)
    options = KServeGrpc.Options(
        address="127.0.0.1",
        port=0,
        use_ssl=not mutual,
        use_mutual_auth=mutual,
        server_cert=str(tmp_path / "server.pem"),
        server_key=str(tmp_path / "server.key"),
        root_cert=str(tmp_path / "root.pem") if mutual else "",
    )
    root = str(tmp_path / "root.pem")
    own = {
        "private_key": str(tmp_path / "client.key"),
        "certificate_chain": str(tmp_path / "client.pem"),
    }
    with KServeGrpc(server, options) as endpoint:
        url = f"localhost:{endpoint.port}"
        known = grpcclient.InferenceServerClient(url, ssl=True, root_certificates=root, **own)
        assert known.is_server_live()
        if mutual:
            stranger = grpcclient.InferenceServerClient(url, ssl=True, root_certificates=root)
            with pytest.raises(InferenceServerException):
                stranger.is_server_live()
