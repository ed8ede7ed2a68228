"""The Helm chart follows the hardening list of docs/security.md."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest

from deployment.chart import VARIANTS, Manifest, container, needs_helm, only, render
from penstock.cli.arguments import parse_arguments
from penstock.settings import Settings, restriction_of
from penstock.settings.rules import SettingsError
from penstock.settings.secure import GRPC_GROUPS, HTTP_GROUPS
from penstock.system.model_variables import passed_on

pytestmark = needs_helm

_WITH_TLS, _WITH_SECRETS = VARIANTS["hardened, with TLS"], VARIANTS["hardened, with secrets"]
_HARDENED = pytest.mark.parametrize("values", [_WITH_TLS, _WITH_SECRETS], ids=["TLS", "secrets"])


def settings_of(values: Mapping[str, Any]) -> Settings:
    """What the server makes of the chart's arguments."""
    return parse_arguments(container(render(values))["args"], {}, print)


def pod(manifests: list[Manifest]) -> dict[str, Any]:
    """The specification of the pods."""
    found: dict[str, Any] = only(manifests, "Deployment")["spec"]["template"]["spec"]
    return found


# -- the pod --------------------------------------------------------------------------------------


@pytest.mark.contract("SEC-11")
def test_every_pod_is_without_privileges(manifests: list[Manifest]) -> None:
    server, user = container(manifests)["securityContext"], pod(manifests)["securityContext"]
    assert (server["allowPrivilegeEscalation"], server["capabilities"]) == (
        False,
        {"drop": ["ALL"]},
    )
    assert server["readOnlyRootFilesystem"]
    assert user["runAsNonRoot"]
    assert user["seccompProfile"] == {"type": "RuntimeDefault"}


@pytest.mark.contract("SEC-11")
def test_no_pod_has_a_token_of_the_cluster(manifests: list[Manifest]) -> None:
    assert pod(manifests)["automountServiceAccountToken"] is False


def test_every_server_has_a_limit_of_memory(manifests: list[Manifest]) -> None:
    """The pool of requests is a quarter of it."""
    assert container(manifests)["resources"]["limits"]["memory"]


# -- the server -----------------------------------------------------------------------------------


@_HARDENED
def test_a_hardened_server_listens_on_the_addresses_of_the_pod(values: Mapping[str, Any]) -> None:
    settings = settings_of(values)
    assert settings.secure
    assert (settings.http.address, settings.grpc.address) == ("0.0.0.0", "0.0.0.0")


def test_restrictions_without_groups_are_all_that_a_hardened_server_needs() -> None:
    settings = settings_of(_WITH_SECRETS)
    http = {group: restriction_of(group, settings.http.restrictions) for group in HTTP_GROUPS}
    grpc = {group: restriction_of(group, settings.grpc.restrictions) for group in GRPC_GROUPS}
    assert {one.value for one in (*http.values(), *grpc.values()) if one} == {
        "value of RESTRICTION_0"
    }
    assert not [group for group, one in (*http.items(), *grpc.items()) if one is None]


def test_an_access_policy_is_mounted_from_its_secret() -> None:
    values = VARIANTS["access policy"]
    manifests = render(values)
    mounts = {one["name"]: one for one in container(manifests)["volumeMounts"]}
    volumes = {one["name"]: one for one in pod(manifests)["volumes"]}
    assert volumes["access"]["secret"] == {"secretName": "policy", "defaultMode": 0o440}
    assert mounts["access"]["readOnly"]
    assert "subPath" not in mounts["access"]  # which would never change
    settings = settings_of(values)
    assert settings.access_policy == f"{mounts['access']['mountPath']}/policy.toml"
    assert settings.secure


def test_loads_by_requests_need_a_restriction() -> None:
    tls = {"enabled": True, "secretName": "certificate"}
    server = {"modelControlMode": "explicit"}
    with pytest.raises(SettingsError, match="unless loads need a secret"):
        settings_of({"security": {"secure": True}, "tls": tls, "server": server})
    assert settings_of(_WITH_TLS).repository.explicit


def test_secrets_are_of_secrets_and_in_no_argument(manifests: list[Manifest]) -> None:
    server = container(manifests)
    secrets = [each for each in server["args"] if "-restricted-" in each]
    assert [each for each in secrets if not re.search(r"=\$[A-Z_0-9]+$", each)] == []
    named = {each["name"] for each in server.get("env", []) if "secretKeyRef" in str(each)}
    chart = {each.rpartition("$")[2] for each in secrets} - {"ADMIN"}  # that of the test's values
    assert chart == named


def test_models_do_not_get_the_secrets() -> None:
    variables = {each["name"]: "secret" for each in container(render(_WITH_SECRETS))["env"]}
    assert {"RESTRICTION_0", "RESTRICTION_1"} < {*variables}
    assert [*passed_on(variables)] == ["HF_HOME"]


def test_services_are_described_only_on_request() -> None:
    assert settings_of({}).grpc.reflection is False
    assert settings_of({"security": {"reflection": True}}).grpc.reflection is True


# -- metrics and the network ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "address"),
    [
        ({}, "127.0.0.1"),
        ({"monitor": {"kind": "pod"}}, "0.0.0.0"),
        ({"networkPolicy": {"metrics": [{"namespaceSelector": {}}]}}, "0.0.0.0"),
        ({"security": {"metricsAddress": "::"}}, "::"),
        (_WITH_SECRETS, "127.0.0.1"),
        (_WITH_TLS, "0.0.0.0"),
    ],
)
def test_metrics_are_for_those_who_are_named(values: Mapping[str, Any], address: str) -> None:
    ports = {port["name"] for port in only(render(values), "Service")["spec"]["ports"]}
    assert settings_of(values).metrics.address == address
    assert ("metrics" in ports) is (address != "127.0.0.1")


def _policy(values: Mapping[str, Any]) -> dict[str, Any]:
    spec: dict[str, Any] = only(render(values), "NetworkPolicy")["spec"]
    return spec


def test_network_policy_lets_in_nobody_who_is_not_named() -> None:
    spec = _policy({"networkPolicy": {"enabled": True}})
    assert spec["policyTypes"] == ["Ingress"]
    assert not spec["ingress"]


def test_network_policy_says_where_the_pod_may_connect() -> None:
    some, none = _policy(_WITH_TLS), _policy(_WITH_SECRETS)
    assert some["policyTypes"] == none["policyTypes"] == ["Ingress", "Egress"]
    assert (some["egress"], none["egress"]) == ([{"ports": [{"port": 53}]}], [])
