"""A server that was started with an access policy: every port asks it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from access.models import OPEN, SECRET, write_models
from access.policies import ADMIN, ALICE, POLICY, SECOND, bearer, hashed, replaced
from app.test_start import failed
from harness.serving import Served, serving, wait_until

grpcclient = pytest.importorskip("tritonclient.grpc", exc_type=ImportError)
utils = pytest.importorskip("tritonclient.utils", exc_type=ImportError)

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("policy") / "policy.toml"
    file.write_text(POLICY)
    return file


@pytest.fixture(scope="module")
def server(policy: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("served")
    repository = write_models(folder / "models")
    with serving(repository, folder / "log", f"--access-policy={policy}") as served:
        yield served


def test_http_asks(server: Served) -> None:
    path = f"http://{server.http}/v2/models/{{}}"
    found = [
        httpx.get(path.format(name), headers=headers).status_code
        for name, headers in (
            (OPEN, {}),
            (OPEN, bearer(ALICE)),
            (SECRET, bearer(ALICE)),
            (SECRET, bearer(ADMIN)),
        )
    ]
    assert found == [401, 200, 404, 200]


def test_grpc_asks(server: Served) -> None:
    with grpcclient.InferenceServerClient(server.grpc) as client:
        with pytest.raises(utils.InferenceServerException) as refused:
            client.get_model_metadata(OPEN)
        assert client.get_model_metadata(OPEN, headers=bearer(ALICE)).name == OPEN
    assert refused.value.status() == "StatusCode.UNAUTHENTICATED"


def test_the_port_of_metrics_asks(server: Served) -> None:
    stranger, admin = [httpx.get(server.metrics, headers=each) for each in ({}, bearer(ADMIN))]
    assert stranger.status_code == 401
    assert admin.status_code == 200


def failures(server: Served) -> float:
    page = httpx.get(server.metrics, headers=bearer(ADMIN)).text
    found = re.search(r"^penstock_access_policy_reload_failures_total (\d+)", page, re.MULTILINE)
    assert found is not None
    return float(found[1])


def test_the_file_is_watched(server: Served, policy: Path) -> None:
    """Last in this file, and as it was when it ends."""
    path = f"http://{server.http}/v2/models/{OPEN}"
    replaced(policy, "")
    wait_until(lambda: failures(server) == 1)
    assert httpx.get(path, headers=bearer(ALICE)).status_code == 200
    replaced(policy, POLICY.replace(hashed(ALICE, SECOND), hashed(SECOND)))
    wait_until(lambda: httpx.get(path, headers=bearer(ALICE)).status_code == 401)
    assert httpx.get(path, headers=bearer(SECOND)).status_code == 200
    replaced(policy, POLICY)
    wait_until(lambda: httpx.get(path, headers=bearer(ALICE)).status_code == 200)


def test_a_wrong_policy_ends_the_start(tmp_path: Path) -> None:
    file = tmp_path / "policy.toml"
    file.write_text("")
    told = failed(write_models(tmp_path / "models"), tmp_path / "log", f"--access-policy={file}")
    assert "it has no 'rules'" in str(told)


def test_the_audit_log_is_written_and_its_losses_are_counted(tmp_path: Path) -> None:
    (tmp_path / "policy.toml").write_text(POLICY)
    flags = [
        f"--access-policy={tmp_path / 'policy.toml'}",
        f"--audit-log={tmp_path / 'audit'}",
        "--model-control-mode=explicit",
    ]
    with serving(write_models(tmp_path / "models"), tmp_path / "log", *flags) as server:
        load = f"http://{server.http}/v2/repository/models/{OPEN}/load"
        assert httpx.post(load, headers=bearer(ADMIN)).status_code == 200
        assert httpx.post(load).status_code == 401
        page = httpx.get(server.metrics, headers=bearer(ADMIN)).text
    assert "\npenstock_audit_lines_lost_total 0\n" in page
    lines = [json.loads(line) for line in (tmp_path / "audit").read_text().splitlines()]
    assert [(line.get("caller"), line["result"]) for line in lines] == [
        ("admin", "200"),
        (None, "401"),
    ]
    assert (tmp_path / "audit").stat().st_mode & 0o777 == 0o600


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_a_full_disk_of_the_audit_log_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "policy.toml").write_text(POLICY)
    flags = [f"--access-policy={tmp_path / 'policy.toml'}", "--audit-log=/dev/full"]
    with serving(write_models(tmp_path / "models"), tmp_path / "log", *flags) as server:
        path = f"http://{server.http}/v2/models/{OPEN}"
        assert [httpx.get(path).status_code for _ in range(3)] == [401] * 3
        assert httpx.get(path, headers=bearer(ALICE)).status_code == 200

        loads = len([*(tmp_path / "models").iterdir()])

        def lost() -> bool:
            page = httpx.get(server.metrics, headers=bearer(ADMIN)).text
            return f"\npenstock_audit_lines_lost_total {loads + 3}\n" in page

        wait_until(lost)


def test_an_audit_log_that_cannot_be_opened_ends_the_start(tmp_path: Path) -> None:
    told = failed(write_models(tmp_path / "models"), tmp_path / "log", "--audit-log=/nowhere/log")
    assert "cannot open the audit log" in str(told)


def test_serve_says_once_that_it_is_open_to_everybody(tmp_path: Path) -> None:
    with serving(write_models(tmp_path / "models"), tmp_path / "log"):
        pass
    assert (tmp_path / "log").read_text().count("may call every model") == 1


def test_tritonserver_is_as_silent_as_triton(tmp_path: Path) -> None:
    silent = (
        "import sys; from penstock.cli import tritonserver; sys.exit(tritonserver(sys.argv[2:]))"
    )
    with serving(write_models(tmp_path / "models"), tmp_path / "log", program=("-c", silent)):
        pass
    assert "may call every model" not in (tmp_path / "log").read_text()
