"""SageMaker and Vertex AI behind an access policy: names of models are told to nobody else."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from access.models import OPEN, SECRET, guarded, write_models
from access.policies import ADMIN, ALICE, bearer
from gateway.serving import LOCAL
from penstock.core.access import AuditEvent
from penstock.core.exit_deadline import ExitDeadline
from penstock.gateway.clouds.sagemaker import open_sagemaker
from penstock.gateway.clouds.vertex import open_vertex
from penstock.gateway.connections.open_connections import ConnectionRules

_ROUTES = {"AIP_PREDICT_ROUTE": "/predict", "AIP_HEALTH_ROUTE": "/health"}
_REDIRECT = "X-Vertex-Ai-Triton-Redirect"
BODY = {"inputs": [{"name": "IN", "datatype": "FP32", "shape": [1], "data": [2]}]}


@pytest.fixture
def folders(tmp_path: Path) -> Path:
    """A repository without models, and each model in a folder of its own, as SageMaker has it."""
    (tmp_path / "none").mkdir()
    models = write_models(tmp_path / "models")
    for name in (OPEN, SECRET):
        (tmp_path / f"of-{name}").mkdir()
        (models / name).rename(tmp_path / f"of-{name}" / name)
    return tmp_path


async def _load(
    client: httpx.AsyncClient, folders: Path, key: str, model: str, name: str
) -> httpx.Response:
    return await client.post(
        "/models",
        json={"model_name": name, "url": str(folders / f"of-{model}" / model)},
        headers={**bearer(key), "x-amzn-sagemaker-target-model": model},
    )


@pytest.fixture
async def sagemaker(folders: Path) -> AsyncIterator[httpx.AsyncClient]:
    """With both models loaded, as `hash-open` and `hash-secret`, by the administrator."""
    async with (
        guarded(folders / "none", explicit=True) as server,
        open_sagemaker(server, LOCAL, 0, folders, {}, ExitDeadline(1)) as port,
        _client(port) as client,
    ):
        for model in (OPEN, SECRET):
            answer = await _load(client, folders, ADMIN, model, f"hash-{model}")
            assert answer.status_code == 200, answer.text
        yield client


@asynccontextmanager
async def _client(port: int) -> AsyncIterator[httpx.AsyncClient]:
    address = f"http://127.0.0.1:{port}"
    async with httpx.AsyncClient(base_url=address, verify=False) as client:
        yield client


@pytest.mark.parametrize(("method", "rest"), [("GET", ""), ("POST", "/invoke"), ("DELETE", "")])
@pytest.mark.parametrize("headers", [bearer(ALICE), bearer("wrong"), {}])
async def test_a_model_that_is_not_seen_is_an_unknown_one_to_sagemaker(
    sagemaker: httpx.AsyncClient, method: str, rest: str, headers: dict[str, str]
) -> None:
    hidden, absent = [
        await sagemaker.request(method, f"/models/{name}{rest}", json=BODY, headers=headers)
        for name in (f"hash-{SECRET}", "absent")
    ]
    assert (hidden.status_code, hidden.content) == (absent.status_code, absent.content)
    assert hidden.status_code in (401, 404)


async def test_a_model_that_is_seen_is_invoked(sagemaker: httpx.AsyncClient) -> None:
    answer = await sagemaker.post(f"/models/hash-{OPEN}/invoke", json=BODY, headers=bearer(ALICE))
    listed = await sagemaker.get("/models", headers=bearer(ALICE))
    assert answer.json()["outputs"][0]["data"] == [2]
    assert [each["modelName"] for each in listed.json()["models"]] == [f"hash-{OPEN}"]


async def test_models_of_other_names_are_not_loaded(
    sagemaker: httpx.AsyncClient, folders: Path
) -> None:
    """Whether SageMaker's name is one that is there or not."""
    answers = [
        await _load(sagemaker, folders, ALICE, SECRET, name) for name in (f"hash-{SECRET}", "new")
    ]
    assert [each.status_code for each in answers] == [403, 403]
    assert answers[0].content == answers[1].content


async def _page(_: str) -> tuple[bytes, str]:
    return b"", "text/plain"


async def test_vertex_asks_for_the_model_that_a_header_names(repository: Path) -> None:
    async with (
        guarded(repository) as server,
        open_vertex(server, LOCAL, 0, OPEN, _ROUTES, ExitDeadline(1), _page) as port,
        _client(port) as client,
    ):
        found = [
            await client.post(
                "/predict",
                json=BODY,
                headers={**bearer(who), _REDIRECT: f"v2/models/{name}/infer"},
            )
            for who, name in ((ALICE, OPEN), (ALICE, SECRET), (ALICE, "absent"), (ADMIN, SECRET))
        ]
    assert [each.status_code for each in found] == [200, 404, 404, 200]
    assert found[1].text == found[2].text.replace("absent", SECRET)


class Told:
    """An audit log that keeps its events."""

    def __init__(self) -> None:
        self.events: list[AuditEvent] = []

    def add(self, event: AuditEvent) -> None:
        self.events.append(event)


async def test_loads_by_sagemaker_are_in_the_audit_log(folders: Path) -> None:
    kept = Told()
    rules = ConnectionRules(audit=kept)
    async with (
        guarded(folders / "none", explicit=True) as server,
        open_sagemaker(server, LOCAL, 0, folders, {}, ExitDeadline(1), rules) as port,
        _client(port) as client,
    ):
        await _load(client, folders, ADMIN, OPEN, f"hash-{OPEN}")
        await _load(client, folders, ALICE, SECRET, f"hash-{SECRET}")
        await client.get("/models", headers=bearer(ADMIN))
        await client.delete(f"/models/hash-{OPEN}", headers=bearer(ADMIN))
        await client.delete(f"/models/hash-{OPEN}")
    assert [(one.caller, one.what, one.result) for one in kept.events] == [
        ("admin", "POST /models", "200"),
        ("alice", "POST /models", "403"),
        ("admin", f"DELETE /models/hash-{OPEN}", "200"),
        ("", f"DELETE /models/hash-{OPEN}", "401"),
    ]


async def test_a_default_model_that_is_not_seen_is_not_named(repository: Path) -> None:
    environment = {"SAGEMAKER_TRITON_DEFAULT_MODEL_NAME": SECRET}
    grace = ExitDeadline(1)
    async with (
        guarded(repository) as server,
        open_vertex(server, LOCAL, 0, SECRET, _ROUTES, grace, _page) as vertex,
        open_sagemaker(server, LOCAL, 0, repository, environment, grace) as sagemaker,
        _client(vertex) as predictions,
        _client(sagemaker) as invocations,
    ):
        for client, path in ((predictions, "/predict"), (invocations, "/invocations")):
            mine = await client.post(path, json=BODY, headers=bearer(ALICE))
            known = await client.post(path, json=BODY, headers=bearer(ADMIN))
            assert (mine.status_code, known.status_code) == (404, 200)
            assert SECRET not in mine.text
