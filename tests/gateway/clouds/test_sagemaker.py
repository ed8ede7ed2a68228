"""The SageMaker endpoint on a port."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import httpx
import numpy as np
import pytest

from gateway.clouds.binary_bodies import LARGE, large_body
from gateway.clouds.encrypted import statuses_over_tls
from gateway.serving import LOCAL, AnsweringServer, FakeServer, serving
from penstock.core.errors import InternalError
from penstock.core.exit_deadline import ExitDeadline
from penstock.gateway.clouds.errors import EndpointStartError
from penstock.gateway.clouds.sagemaker import open_sagemaker
from penstock.server.server import InferenceServer
from penstock.settings import Feature, HttpSettings, Restriction, SagemakerSettings
from rpc.certificates import needs_openssl, tls

_MODEL = {"SAGEMAKER_TRITON_DEFAULT_MODEL_NAME": "numbers"}
_BINARY = "application/vnd.sagemaker-triton.binary+json;json-header-size="
_INFER = {"inputs": [{"name": "IN", "datatype": "FP32", "shape": [1], "data": [2]}]}
_CONFIG = """
backend: "identity"
input [{ name: "IN" data_type: TYPE_FP32 dims: [-1] }]
output [{ name: "OUT" data_type: TYPE_FP32 dims: [-1] }]
"""
_ENSEMBLE = """
platform: "ensemble"
input [{ name: "IN" data_type: TYPE_FP32 dims: [-1] }]
output [{ name: "OUT" data_type: TYPE_FP32 dims: [-1] }]
ensemble_scheduling { step [{
  model_name: "inner"
  model_version: -1
  input_map { key: "IN" value: "IN" }
  output_map { key: "OUT" value: "OUT" }
}] }
"""


@asynccontextmanager
async def _opened(
    server: InferenceServer,
    environment: Mapping[str, str] = _MODEL,
    *,
    root: Path = Path("/no/models"),
    http: HttpSettings = LOCAL,
) -> AsyncIterator[httpx.AsyncClient]:
    opening = open_sagemaker(server, http, 0, root, environment, ExitDeadline(1))
    async with (
        opening as port,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", verify=False) as client,
    ):
        yield client


# -- one model ------------------------------------------------------------------------------------


@pytest.mark.contract("CLD-01")
@pytest.mark.parametrize(
    ("mode", "ready", "status"),
    [("", True, 200), ("", False, 400), ("ready", False, 400), ("live", True, 200)],
)
async def test_ping_is_health(mode: str, ready: bool, status: int) -> None:
    server = FakeServer()
    server.healthy = ready
    async with _opened(server, {**_MODEL, "SAGEMAKER_TRITON_PING_MODE": mode}) as client:
        assert (await client.get("/ping")).status_code == status
        assert (await client.post("/ping")).status_code == 405


@pytest.mark.contract("CLD-01")
@pytest.mark.parametrize(
    ("kind", "body", "part"),
    [
        ("infer", _INFER, '"data":[2.0]'),
        ("generate", {"IN": 2.0}, '"OUT":2.0'),
        ("generate_stream", {"IN": 2.0}, 'data: {"OUT":2.0'),
    ],
)
async def test_invocations_are_calls_of_the_default_model(
    kind: str, body: object, part: str
) -> None:
    environment = {**_MODEL, "SAGEMAKER_TRITON_INFERENCE_TYPE": kind}
    async with _opened(FakeServer(), environment) as client:
        answer = await client.post("/invocations", json=body)
        assert answer.status_code == 200
        assert part in answer.text
        assert (await client.get("/invocations")).status_code == 405
        assert (await client.get("/v2")).status_code == 400


@pytest.mark.contract("CLD-03")
async def test_length_of_the_json_stands_in_the_content_type() -> None:
    text = (
        b'{"inputs":[{"name":"IN","datatype":"FP32","shape":[2],"parameters":{"binary_data_size":8'
        b'}}],"outputs":[{"name":"OUT","parameters":{"binary_data":true}}]}'
    )
    values = np.array([1, 2], np.float32).tobytes()
    headers = {"content-type": f"{_BINARY}{len(text)}"}
    async with _opened(FakeServer()) as client:
        answer = await client.post("/invocations", content=text + values, headers=headers)
    kind = answer.headers["content-type"]
    assert kind.startswith(_BINARY)
    assert answer.content[int(kind.removeprefix(_BINARY)) :] == values


@pytest.mark.contract("CLD-03")
async def test_large_tensors_are_received_into_memory_that_model_processes_map() -> None:
    body, headers = large_body(_BINARY)
    server = FakeServer()
    async with _opened(server) as client:
        assert (await client.post("/invocations", content=body, headers=headers)).status_code == 200
    received = server.requests[0].inputs["IN"]
    assert received.shared is not None
    assert received.numpy().tolist() == LARGE.tolist()


@pytest.mark.contract("CLD-01")
@pytest.mark.parametrize("name", ["INFERENCE_TYPE", "PING_MODE"])
async def test_unknown_values_of_the_environment_are_refused(name: str) -> None:
    with pytest.raises(EndpointStartError, match="'x'"):
        async with _opened(FakeServer(), {f"SAGEMAKER_TRITON_{name}": "x"}):
            pass


# -- many models ----------------------------------------------------------------------------------


@pytest.fixture
def folders(tmp_path: Path) -> Path:
    """Models where SageMaker puts them: below folders of names that it makes up."""
    for number, place in ((1, "model"), (2, "model/inner")):
        model = tmp_path / f"hash{number}" / place
        (model / "1").mkdir(parents=True)
        (model / "config.pbtxt").write_text(_CONFIG)
    return tmp_path


@pytest.fixture
async def client(folders: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[object]:
    """A client of a server without models."""
    empty = tmp_path_factory.mktemp("empty")
    async with (
        serving(empty, [], explicit_control=True) as server,
        _opened(server, root=folders) as client,
    ):
        yield client


async def _load(
    client: httpx.AsyncClient, folders: Path, number: int, target: str = ""
) -> httpx.Response:
    body = {"model_name": f"hash{number}", "url": str(folders / f"hash{number}" / "model")}
    headers = {"X-Amzn-SageMaker-Target-Model": target} if target else {}
    return await client.post("/models", json=body, headers=headers)


@pytest.mark.contract("CLD-02", "M-17")
@pytest.mark.parametrize("number", [1, 2], ids=["model", "folder of models"])
async def test_models_come_answer_and_go(
    client: httpx.AsyncClient, folders: Path, number: int
) -> None:
    name = f"hash{number}"
    assert (await _load(client, folders, number)).status_code == 200
    answer = await client.post(f"/models/{name}/invoke", json=_INFER)
    assert answer.json()["outputs"][0]["data"] == [2.0]
    described = (await client.get(f"/models/{name}")).json()
    assert described["modelName"] == name
    assert (await client.get("/models")).json() == {"models": [described]}
    assert (await client.delete(f"/models/{name}")).status_code == 200
    assert (await client.get("/models")).json() == {"models": []}
    assert (await client.post(f"/models/{name}/invoke", json=_INFER)).status_code == 404
    assert (await _load(client, folders, number)).status_code == 200


@pytest.mark.contract("CLD-02")
async def test_models_of_an_ensemble_go_with_it(
    folders: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    (folders / "hash2" / "model" / "whole" / "1").mkdir(parents=True)
    (folders / "hash2" / "model" / "whole" / "config.pbtxt").write_text(_ENSEMBLE)
    empty = tmp_path_factory.mktemp("empty")
    async with (
        serving(empty, [], explicit_control=True) as server,
        _opened(server, root=folders) as client,
    ):
        assert (await _load(client, folders, 2)).status_code == 200
        assert await server.model_ready("inner", "")
        assert (await client.delete("/models/hash2")).status_code == 200
        assert not await server.model_ready("inner", "")


@pytest.mark.contract("CLD-02")
async def test_model_may_have_another_name_on_the_server(
    client: httpx.AsyncClient, folders: Path
) -> None:
    target = {"X-Amzn-SageMaker-Target-Model": "a.tar.gz"}
    assert (await _load(client, folders, 1, "a.tar.gz")).status_code == 200
    answer = await client.post("/models/hash1/invoke", json=_INFER, headers=target)
    assert answer.json()["model_name"] == "a.tar.gz"


@pytest.mark.contract("CLD-02")
async def test_model_that_is_there_is_a_conflict(client: httpx.AsyncClient, folders: Path) -> None:
    await _load(client, folders, 1)
    answer = await _load(client, folders, 1)
    assert answer.status_code == 409
    assert "has already been registered" in answer.json()["error"]


@pytest.mark.contract("CLD-02")
async def test_name_that_is_taken_is_a_conflict_for_another_model_too(
    client: httpx.AsyncClient, folders: Path
) -> None:
    """Else nobody could unload the one that has it."""
    assert (await _load(client, folders, 1, "a")).status_code == 200
    body = {"model_name": "hash1", "url": str(folders / "hash2" / "model")}
    headers = {"X-Amzn-SageMaker-Target-Model": "b"}
    assert (await client.post("/models", json=body, headers=headers)).status_code == 409
    answer = await client.post("/models/hash1/invoke", json=_INFER)
    assert answer.json()["model_name"] == "a"


@pytest.mark.contract("CLD-02")
async def test_model_that_is_not_there_is_not_found(client: httpx.AsyncClient) -> None:
    calls = [("GET", "/models/x"), ("DELETE", "/models/x"), ("POST", "/models/x/invoke")]
    assert [(await client.request(*call)).status_code for call in calls] == [404] * 3


@pytest.mark.contract("CLD-02")
@pytest.mark.parametrize("url", ["/dev/shm", "/proc/self", "/tmp/../sys/kernel"])
async def test_folders_of_the_system_are_refused(client: httpx.AsyncClient, url: str) -> None:
    answer = await client.post("/models", json={"model_name": "m", "url": url})
    assert answer.status_code == 400
    assert "cannot start with /dev/, /proc/, or /sys/" in answer.json()["error"]


@pytest.mark.contract("CLD-02")
@pytest.mark.parametrize("given", [{}, {"url": ""}], ids=["none", "empty"])
async def test_without_a_folder_that_of_the_server_is_not_taken(
    client: httpx.AsyncClient, folders: Path, given: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folders / "hash1" / "model")
    answer = await client.post("/models", json={"model_name": "hash1", **given})
    assert answer.status_code == 400
    assert answer.json()["error"].startswith("Unable to parse 'url': ")
    assert (await client.get("/models")).json() == {"models": []}


@pytest.mark.contract("CLD-02")
@pytest.mark.parametrize("name", ["x\0y", "x" * 5000], ids=["zero byte", "long"])
async def test_what_is_no_folder_at_all_is_refused(
    client: httpx.AsyncClient, folders: Path, name: str
) -> None:
    answer = await client.post("/models", json={"model_name": "m", "url": f"{folders}/{name}"})
    assert answer.status_code == 400
    assert answer.json()["error"].startswith(f"failed to register '{folders}/x")


@pytest.mark.contract("CLD-02")
@pytest.mark.parametrize("outside", ["hash1/../..", "", "link", "hash1/model/../../../elsewhere"])
async def test_models_lie_below_the_folder_of_the_service(
    client: httpx.AsyncClient, folders: Path, outside: str
) -> None:
    """A link out of it leads out of it."""
    (folders / "link").symlink_to(folders.parent)
    body = {"model_name": "m", "url": str(folders / outside)}
    answer = await client.post("/models", json=body)
    assert answer.status_code == 400
    assert f"Models must lie below '{folders}'" in answer.json()["error"]


@pytest.mark.contract("CLD-02")
async def test_where_the_service_puts_models_is_allowed_by_default() -> None:
    server = FakeServer()
    async with _opened(server, root=Path(SagemakerSettings().model_root)) as client:
        body = {"model_name": "m", "url": "/opt/ml/models/0a1b2c/model"}
        answer = await client.post("/models", json=body)
    text = "failed to register '/opt/ml/models/0a1b2c/model', repository not found"
    assert answer.json() == {"error": text}


@pytest.mark.contract("CLD-02", "N-06")
@pytest.mark.parametrize("detour", ["hash2/../hash1/model", "%2e%2e/x", "hash1%2Fmodel"])
async def test_detours_to_a_model_are_refused(
    client: httpx.AsyncClient, folders: Path, detour: str
) -> None:
    (folders / detour).mkdir(parents=True, exist_ok=True)
    body = {"model_name": "m", "url": f"{folders}/{detour}"}
    answer = await client.post("/models", json=body)
    assert (answer.status_code, "cannot have '..'" in answer.json()["error"]) == (400, True)


@pytest.mark.contract("CLD-02", "N-06")
@pytest.mark.parametrize(
    "target", ["a/adapters/x", "a/versions/1", "/", "/a", "..", "a%2Fversions%2F1", "a\\b"]
)
async def test_a_targets_name_reaches_no_other_route(
    client: httpx.AsyncClient, folders: Path, target: str
) -> None:
    assert (await _load(client, folders, 1, target)).status_code == 400
    assert (await _load(client, folders, 1)).status_code == 200
    headers = {"X-Amzn-SageMaker-Target-Model": target}
    answer = await client.post("/models/hash1/invoke", json=_INFER, headers=headers)
    assert (answer.status_code, "no name of a model" in answer.text) == (400, True)


async def test_page_of_another_origin_loads_nothing(
    client: httpx.AsyncClient, folders: Path
) -> None:
    client.headers["origin"] = "http://evil.example"
    assert (await _load(client, folders, 1)).status_code == 403
    assert (await client.delete("/models/hash1")).status_code == 403
    assert (await client.get("/models")).json() == {"models": []}


_CALLS = {
    ("POST", "/invocations"): Feature.INFERENCE,
    ("POST", "/models/m/invoke"): Feature.INFERENCE,
    ("GET", "/models"): Feature.MODEL_REPOSITORY,
    ("POST", "/models"): Feature.MODEL_REPOSITORY,
    ("GET", "/models/m"): Feature.MODEL_REPOSITORY,
    ("DELETE", "/models/m"): Feature.MODEL_REPOSITORY,
    ("GET", "/ping"): Feature.HEALTH,
}


@pytest.mark.parametrize(("method", "path"), _CALLS)
async def test_restricted_groups_want_their_header_here_too(method: str, path: str) -> None:
    """As on the port of KServe's protocol: another port is no other way in."""
    restriction = Restriction(frozenset({_CALLS[method, path]}), "Key", "secret")
    async with _opened(FakeServer(), http=replace(LOCAL, restrictions=(restriction,))) as client:
        answers = [
            await client.request(method, path, json=_INFER, headers=headers)
            for headers in ({}, {"Key": "wrong"}, {"Key": "secret"})
        ]
    assert [answer.status_code == 403 for answer in answers] == [True, True, False]


@needs_openssl
async def test_tls_and_certificates_of_clients_hold_here_too(certificates: Path) -> None:
    http = replace(LOCAL, tls=tls(certificates, mutual=True))
    async with _opened(FakeServer(), http=http) as client:
        assert await statuses_over_tls(client, certificates, "/ping") == (None, None, 200)


@pytest.mark.contract("CLD-02")
async def test_model_that_cannot_be_loaded_leaves_nothing_behind(
    client: httpx.AsyncClient, folders: Path
) -> None:
    shutil.rmtree(folders / "hash1" / "model" / "1")
    answer = await _load(client, folders, 1)
    assert answer.status_code == 400
    (folders / "hash1" / "model" / "1").mkdir()
    assert (await _load(client, folders, 1)).status_code == 200


@pytest.mark.contract("CLD-02")
async def test_want_of_memory_is_507(
    folders: Path, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SageMaker unloads other models then, and asks again."""

    async def fail(*_: object) -> None:
        raise InternalError("CUDA out of memory. Tried to allocate 2 GiB")

    monkeypatch.setattr(InferenceServer, "load", fail)
    assert (await _load(client, folders, 1)).status_code == 507


class _FullServer(AnsweringServer):
    """Takes any model, and then has no memory for calls."""

    def __init__(self) -> None:
        super().__init__(error=InternalError("CUDA out of memory"))

    async def register_repository(self, path: str, names: Mapping[str, str] | None = None) -> None:
        assert names == {"model": "numbers"}


@pytest.mark.contract("CLD-02")
async def test_want_of_memory_in_a_call_is_507_too(folders: Path) -> None:
    async with _opened(_FullServer(), root=folders) as client:
        assert (await _load(client, folders, 1, "numbers")).status_code == 200
        assert (await client.post("/models/hash1/invoke", json=_INFER)).status_code == 507


class _SlowServer(AnsweringServer):
    """Takes any model, and says whether one is ready once it may."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.go_on = asyncio.Event(), asyncio.Event()

    async def register_repository(self, path: str, names: Mapping[str, str] | None = None) -> None:
        assert names

    async def model_ready(self, name: str, version: str) -> bool:
        self.asked.set()
        await self.go_on.wait()
        return True


@pytest.mark.contract("CLD-02")
async def test_model_may_come_while_others_are_listed(folders: Path) -> None:
    server = _SlowServer()
    async with _opened(server, root=folders) as client:
        await _load(client, folders, 1)
        listing = asyncio.ensure_future(client.get("/models"))
        await server.asked.wait()
        assert (await _load(client, folders, 2)).status_code == 200
        server.go_on.set()
        answer = await listing
    assert [each["modelName"] for each in answer.json()["models"]] == ["hash1"]
