"""Parts of `make kube` that need no cluster."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml

from deployment.proxies import PROXIES
from kube import api, kinds, nodes, releases, scaling, traffic, variants
from kube.cluster import VERSION
from kube.scaling import Sample
from programs.install import HERE

# -- pods -----------------------------------------------------------------------------------------

_ARGUMENTS = [
    "--model-repository=/models",
    "--http-port=8000",
    "--metrics-address=127.0.0.1",
    "--access-policy=/etc/penstock/access/policy.toml",
]


def test_arguments_of_a_pod_name_its_folders_and_its_address() -> None:
    mounts = {"/models": Path("/pod/models"), "/etc/penstock/access": Path("/pod/access")}
    address = nodes.address_of("10.244.0.7")
    assert nodes.localized(["tritonserver", *_ARGUMENTS], mounts, address, {}) == [
        "tritonserver",
        "--model-repository=/pod/models",
        "--http-port=8000",
        "--access-policy=/pod/access/policy.toml",
        "--http-address=127.244.0.7",
        "--grpc-address=127.244.0.7",
        "--metrics-address=127.244.0.7",
    ]


def test_a_folder_of_a_mount_is_not_taken_for_another_mount() -> None:
    mounts = {"/models": Path("/tmp/pod/models"), "/tmp": Path("/tmp/pod/tmp")}
    assert nodes.localized(["--x=/models"], mounts, "", {}) == ["--x=/tmp/pod/models"]


def test_a_mount_is_not_the_beginning_of_another_folder() -> None:
    assert nodes.localized(["--x=/models-2/a"], {"/models": Path("/pod")}, "", {}) == [
        "--x=/models-2/a"
    ]


def test_a_pod_that_is_no_server_finds_services_by_name() -> None:
    services = {"demo-penstock:8000": "127.0.0.1:4321"}
    command = ["python", "-c", "...", "http://demo-penstock:8000/v2/health/ready"]
    found = nodes.localized(command, {}, "127.244.0.1", services)
    assert found == ["python", "-c", "...", "http://127.0.0.1:4321/v2/health/ready"]


def test_files_are_laid_out_behind_links(tmp_path: Path) -> None:
    keys = {"a__1__model.py": b"code", "left": b"out"}
    files = nodes.projected(keys, [{"key": "a__1__model.py", "path": "a/1/model.py"}])
    nodes.lay_out(tmp_path, files)
    assert (tmp_path / "a" / "1" / "model.py").read_bytes() == b"code"
    assert os.readlink(tmp_path / "a") == "..data/a"
    assert nodes.projected(keys, ()) == keys


def test_pods_that_are_being_deleted_are_not_ready() -> None:
    conditions = {"conditions": [{"type": "Ready", "status": "True"}]}
    one = {"metadata": {"name": "one"}, "status": conditions}
    leaving = {"metadata": {"name": "two", "deletionTimestamp": "now"}, "status": conditions}
    new = {"metadata": {"name": "three"}, "status": {}}
    assert nodes.ready([one, leaving, new]) == [one]


# -- the proxy ------------------------------------------------------------------------------------

_SLICE = {
    "endpoints": [
        {"addresses": ["10.244.0.2"], "conditions": {"ready": True}},
        {"addresses": ["10.244.0.3"], "conditions": {"ready": False, "serving": True}},
    ],
    "ports": [{"name": "http", "port": 8000}, {"name": "grpc", "port": 8001}],
}


def test_only_ready_endpoints_get_requests() -> None:
    found = traffic.endpoints([_SLICE, {"endpoints": None, "ports": None}])
    assert found == {"http": [("127.244.0.2", 8000)], "grpc": [("127.244.0.2", 8001)]}


def test_assignment_names_its_cluster_and_its_hosts() -> None:
    written = traffic.assignment("http", [("127.244.0.2", 8000)], 3)
    (resource,) = written["resources"]
    (host,) = resource["endpoints"][0]["lb_endpoints"]
    assert (written["version_info"], resource["cluster_name"]) == ("3", "http")
    assert host["endpoint"]["address"]["socket_address"]["address"] == "127.244.0.2"


def test_proxy_is_ours_with_endpoints_from_files(tmp_path: Path) -> None:
    text = (PROXIES / "envoy.yaml").read_text()
    found = traffic.following(text, tmp_path, {8000: 1, 8001: 2})["static_resources"]
    ours = yaml.safe_load(text)["static_resources"]
    ports = [each["address"]["socket_address"]["port_value"] for each in found["listeners"]]
    names = {each["eds_cluster_config"]["service_name"] for each in found["clusters"]}
    assert (ports, names) == ([1, 2], {"http", "grpc"})
    for before, after in zip(ours["clusters"], found["clusters"], strict=True):
        assert after["health_checks"] == before["health_checks"]
        assert after["ignore_health_on_host_removal"]


# -- metrics --------------------------------------------------------------------------------------

_PAGE = """\
# TYPE nv_inference_queue_duration_us counter
nv_inference_queue_duration_us{model="a",version="1"} 3000
nv_inference_queue_duration_us{model="b",version="1"} 1000
nv_inference_request_success{model="a",version="1"} 30
nv_inference_request_success{model="b",version="1"} 10
"""


def test_a_page_is_summed_over_its_models() -> None:
    assert scaling.sample(_PAGE, 7.0) == Sample(7.0, 4000.0, 40.0)


@pytest.mark.parametrize(
    ("samples", "mean"),
    [
        ([], 0.0),
        ([Sample(0, 500, 5)], 0.0),
        ([Sample(0, 500, 5), Sample(1, 500, 5)], 0.0),
        ([Sample(0, 500, 5), Sample(1, 600, 6), Sample(2, 2500, 15)], 200.0),
    ],
)
def test_mean_wait_is_of_the_requests_between(samples: list[Sample], mean: float) -> None:
    assert scaling.mean_wait(samples) == mean


def test_metrics_api_answers_for_the_pods_of_a_namespace() -> None:
    means = {("here", "one"): 1.5, ("there", "two"): 9.0}
    path = f"/apis/{scaling.VERSION}/namespaces/here/pods/%2A/{scaling.METRIC}?labelSelector=a"
    answer = scaling.answer(path, means)
    assert answer is not None
    (value,) = answer["items"]
    assert (value["describedObject"]["name"], value["value"]) == ("one", "1500m")
    assert scaling.answer(path.replace(scaling.METRIC, "other"), means) is None
    discovery = scaling.answer(f"/apis/{scaling.VERSION}", means)
    assert discovery is not None
    assert discovery["resources"][0]["name"] == f"pods/{scaling.METRIC}"


# -- what the server says, and what is printed ----------------------------------------------------


def test_warnings_are_read_from_headers() -> None:
    headers = ['299 - "would violate \\"restricted\\""', '299 - "one", 299 - "two"']
    assert api.warnings_of(headers) == ['would violate "restricted"', "one", "two"]


def test_collections_are_of_a_namespace_or_of_all() -> None:
    assert api.collection("v1/pods") == "/api/v1/pods"
    assert api.collection("apps/v1/deployments", "a") == "/apis/apps/v1/namespaces/a/deployments"


def test_cells_of_a_table_are_one_line() -> None:
    assert releases.table(["a", "b"], [["x|y\nz", 1.25]]) == (
        "| a | b |\n| --- | --- |\n| x\\|y z | 1.2 |"
    )


def test_parts_of_kubernetes_are_all_of_one_version() -> None:
    text = (HERE / "kubernetes" / "go.mod").read_text()
    parts = {line.split()[-1] for line in text.splitlines() if " => k8s.io/" in line}
    assert parts == {f"v0{VERSION.removeprefix('1')}"}


def test_pool_of_the_gateway_has_the_pods_of_the_manifests() -> None:
    pool, objective = kinds.manifests("kubernetes/inference-pool.yaml")
    (deployment,) = kinds.manifests("kubernetes/base/deployment.yaml")
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    ports = {each["containerPort"] for each in container["ports"]}
    assert pool["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert {each["number"] for each in pool["spec"]["targetPorts"]} <= ports
    assert objective["spec"]["poolRef"]["name"] == pool["metadata"]["name"]


def test_a_kind_that_a_variant_has_twice_is_said_to_be_there_twice() -> None:
    manifests = [{"kind": kind} for kind in ("Service", "Ingress", "Deployment", "Ingress")]
    assert variants.kinds_of(manifests) == "Deployment, Ingress (2), Service"
