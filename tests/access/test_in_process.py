"""Endpoints of a server in a program: certificates, and who may call."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
from loadtest.authority import Authority, client_context, write_pair, write_whole

import penstock.in_process as tritonserver
from access.models import OPEN, SECRET
from access.policies import ADMIN, ALICE, POLICY, bearer, replaced
from harness.serving import wait_until
from penstock.in_process.frontend import KServeGrpc, KServeHttp, Metrics
from penstock.protocol import grpc_service_pb2 as pb
from penstock.protocol.grpc_service_pb2_grpc import GRPCInferenceServiceStub

WORKLOAD = "spiffe://cluster/ns/research/sa/bob"
CERTIFIED = POLICY.replace("[callers.bob]\n", f'[callers.bob]\ncertificates = ["{WORKLOAD}"]\n')
CERTIFIED = CERTIFIED.replace('"group:res*"', '"group:res*", "bob"')


def index(http: KServeHttp, headers: dict[str, str]) -> tuple[int, list[str]]:
    """The status of an index over HTTP, and the names in it."""
    url = f"http://127.0.0.1:{http.port}/v2/repository/index"
    answer = httpx.post(url, headers=headers)
    return answer.status_code, [one["name"] for one in answer.json()] if answer.is_success else []


def test_a_policy_is_asked_at_endpoints_and_not_by_the_program(
    repository: Path, tmp_path: Path
) -> None:
    policy, audit = tmp_path / "policy.toml", tmp_path / "audit.json"
    policy.write_text(POLICY)
    with (
        tritonserver.Server(
            model_repository=str(repository), access_policy=str(policy), audit_log=str(audit)
        ) as server,
        KServeHttp(server, KServeHttp.Options(address="127.0.0.1", port=0)) as http,
        Metrics(server, Metrics.Options(address="127.0.0.1", port=0)) as metrics,
    ):
        assert index(http, {}) == (401, [])
        assert index(http, bearer(ALICE)) == (200, [OPEN])
        assert index(http, bearer(ADMIN)) == (200, [OPEN, SECRET])
        page = f"http://127.0.0.1:{metrics.port}/metrics"
        assert httpx.get(page).status_code == 401
        assert "penstock_audit_lines_lost_total 0" in httpx.get(page, headers=bearer(ADMIN)).text
        assert server.model(SECRET).ready()
        replaced(policy, POLICY.replace('"open*"', '"secret"'))
        wait_until(lambda: index(http, bearer(ALICE)) == (200, [SECRET]))
    told = [json.loads(line) for line in audit.read_text().splitlines()]
    assert [(one["what"], one.get("cause")) for one in told] == [
        ("load", "start"),
        ("load", "start"),
        ("POST /v2/repository/index", None),
        ("GET /metrics", None),
        ("access-policy", "file"),
    ]


def test_a_wrong_policy_or_log_ends_the_start(repository: Path, tmp_path: Path) -> None:
    (tmp_path / "policy.toml").write_text("rules = 1")
    wrongs: tuple[dict[str, Any], ...] = (
        {"access_policy": str(tmp_path / "policy.toml")},
        {"audit_log": str(tmp_path / "no" / "folder")},
    )
    for wrong in wrongs:
        with pytest.raises(tritonserver.TritonError, match=r"rules|audit log"):
            tritonserver.Server(model_repository=str(repository), **wrong).start()


def test_callers_are_known_by_their_certificates_over_both(
    repository: Path, tmp_path: Path
) -> None:
    authority, policy = Authority(), tmp_path / "policy.toml"
    policy.write_text(CERTIFIED)
    write_pair(tmp_path, "server", authority.signed(dns=["localhost"]))
    write_whole(tmp_path / "root.pem", authority.pem)
    tls: dict[str, Any] = {
        "address": "127.0.0.1",
        "port": 0,
        "use_mutual_auth": True,
        "server_cert": str(tmp_path / "server.pem"),
        "server_key": str(tmp_path / "server.key"),
        "root_cert": str(tmp_path / "root.pem"),
    }
    with (
        tritonserver.Server(model_repository=str(repository), access_policy=str(policy)) as server,
        KServeHttp(server, KServeHttp.Options(**tls)) as http,
        KServeGrpc(server, KServeGrpc.Options(**tls)) as rpc,
    ):
        url = f"https://localhost:{http.port}/v2/repository/index"
        for uris, status in (([WORKLOAD], 200), (["spiffe://cluster/other"], 401)):
            pair = authority.signed(uris=uris)
            shown = client_context(authority.pem, pair, "http/1.1")
            assert httpx.post(url, verify=shown).status_code == status
            credentials = grpc.ssl_channel_credentials(authority.pem, pair[1], pair[0])
            with grpc.secure_channel(f"localhost:{rpc.port}", credentials) as channel:
                asked = GRPCInferenceServiceStub(channel).RepositoryIndex
                if status == 200:
                    listed = asked(pb.RepositoryIndexRequest(), timeout=20)
                    assert [one.name for one in listed.models] == [OPEN]
                else:
                    with pytest.raises(grpc.RpcError, match="UNAUTHENTICATED"):
                        asked(pb.RepositoryIndexRequest(), timeout=20)
        with pytest.raises((httpx.TransportError, httpx.ReadError)):
            httpx.post(url, verify=client_context(authority.pem, None, "http/1.1"))
        # What is renewed is taken up, as by the command.
        other = Authority("other")
        write_pair(tmp_path, "server", other.signed(dns=["localhost"]))
        write_whole(tmp_path / "root.pem", other.pem)
        shown = client_context(other.pem, other.signed(uris=[WORKLOAD]), "http/1.1")

        def renewed() -> bool:
            try:
                return httpx.post(url, verify=shown).is_success
            except httpx.TransportError:
                return False

        wait_until(renewed)
