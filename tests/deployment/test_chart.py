"""The Helm chart: rendered, checked by Kubernetes' schemas, and held against the server."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from deployment.chart import (
    CHART,
    VARIANTS,
    Manifest,
    container,
    helm,
    needs_helm,
    only,
    render,
    template,
)
from penstock import __version__
from penstock.cli.arguments import parse_arguments
from penstock.models.repository.repository import ModelRepository
from penstock.settings import ModelControlMode

pytestmark = needs_helm

_OPERATOR = "monitoring.coreos.com/v1"
"""The group of Prometheus' operator, of which Kubernetes has no schemas."""


def test_lint_finds_no_fault() -> None:
    done = helm("lint", "--strict", CHART)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("version", ["1.25", "1.37"])
def test_manifests_fit_the_schemas_of_kubernetes(manifests: list[Manifest], version: str) -> None:
    known = [manifest for manifest in manifests if manifest["apiVersion"] != _OPERATOR]
    assert len(known) >= 2
    for manifest in known:
        kubernetes_validate.validate(manifest, version, strict=True)


def test_schema_refuses_a_wrong_field() -> None:
    """What the test above is worth."""
    deployment = only(render({"podSecurityContext": {"runAsNobody": True}}), "Deployment")
    with pytest.raises(kubernetes_validate.ValidationError, match="runAsNobody"):
        kubernetes_validate.validate(deployment, "1.31", strict=True)


@pytest.mark.contract("K-07")
@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"replica": 2}, "replica"),
        ({"models": {"source": "s3"}}, "source"),
        ({"models": {"configMap": {"files": {"../x/y": ""}}}}, "x/y"),
        ({"models": {"source": "pvc"}}, "models.pvc.claimName is needed"),
        ({"models": {"source": "url"}}, "models.url is needed"),
        ({"models": {"source": "url", "url": "bucket/models"}}, "url"),
        ({"tls": {"enabled": True}}, "tls.secretName is needed"),
        ({"security": {"secure": True}}, "security.secure needs tls.enabled or"),
        ({"security": {"restrictions": [{"header": "a"}]}}, "secretName"),
        ({"security": {"groups": ["everything"]}}, "groups"),
        ({"autoscaling": {"enabled": True, "cpuPercent": 0}}, "autoscaling needs"),
    ],
)
def test_values_that_mean_nothing_are_refused(
    values: Mapping[str, Any], complaint: str, tmp_path: Path
) -> None:
    done = template(tmp_path, values)
    assert done.returncode != 0
    assert complaint in done.stderr


def _undescribed(schema: Mapping[str, Any], values: Any, place: str) -> list[str]:
    """Values that the schema has no description of, or does not have at all."""
    known = schema.get("properties", {})
    given = values if isinstance(values, Mapping) and known else {}
    found = [f"{place}.{name}" for name in given if name not in known]
    for name, each in known.items():
        found += [] if each.get("description") else [f"{place}.{name}"]
        found += _undescribed(each, given.get(name), f"{place}.{name}")
        found += _undescribed(each.get("items", {}), None, f"{place}.{name}[]")
    return found


def test_schema_describes_each_value() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    assert _undescribed(schema, yaml.safe_load((CHART / "values.yaml").read_text()), "") == []


@pytest.mark.contract("K-07")
def test_server_takes_the_arguments(manifests: list[Manifest]) -> None:
    server = container(manifests)
    warnings: list[str] = []
    settings = parse_arguments(server["args"], {}, warnings.append)
    ports = {port["name"]: port["containerPort"] for port in server["ports"]}
    assert ports == {
        "http": settings.http.port,
        "grpc": settings.grpc.port,
        "metrics": settings.metrics.port,
    }
    assert (server["command"], warnings) == (["tritonserver"], [])


def test_pod_outlives_the_exit_of_the_server() -> None:
    values = {"preStopSeconds": 7, "server": {"exitTimeoutSeconds": 120}}
    manifests = render(values)
    settings = parse_arguments(container(manifests)["args"], {}, print)
    pod = only(manifests, "Deployment")["spec"]["template"]["spec"]
    assert container(manifests)["lifecycle"]["preStop"]["exec"]["command"] == ["sleep", "7"]
    assert settings.exit_timeout_seconds == 120
    assert pod["terminationGracePeriodSeconds"] == 137


@pytest.mark.contract("K-08")
def test_probes_ask_for_life_and_readiness() -> None:
    server = container(render({}))
    paths = [server[f"{name}Probe"]["httpGet"]["path"] for name in ("startup", "liveness")]
    assert paths == ["/v2/health/live", "/v2/health/live"]
    assert server["readinessProbe"]["httpGet"]["path"] == "/v2/health/ready"


def test_tls_is_of_the_server_the_probes_and_the_service() -> None:
    manifests = render(VARIANTS["TLS and ingress"])
    server = container(manifests)
    settings = parse_arguments(server["args"], {}, print)
    probe = server["readinessProbe"]["httpGet"]
    ports = {port["name"]: port for port in only(manifests, "Service")["spec"]["ports"]}
    assert (settings.http.tls.enabled, settings.grpc.tls.enabled) == (True, True)
    assert (settings.http.tls.mutual, settings.grpc.tls.mutual) == (False, True)
    assert (probe["scheme"], probe["httpHeaders"]) == (
        "HTTPS",
        [{"name": "health", "value": "yes"}],
    )
    assert ports["http"]["appProtocol"] == "https"
    assert "appProtocol" not in ports["grpc"]


@pytest.mark.contract("SEC-11")
def test_user_is_the_one_of_the_image() -> None:
    (user, group) = re.findall(
        r"^USER (\d+):(\d+)", (CHART.parents[2] / "Dockerfile").read_text(), re.MULTILINE
    )[0]
    manifests = render({})
    pod = only(manifests, "Deployment")["spec"]["template"]["spec"]["securityContext"]
    assert (pod["runAsUser"], pod["runAsGroup"]) == (int(user), int(group))
    assert pod["runAsNonRoot"]
    assert container(manifests)["securityContext"]["readOnlyRootFilesystem"]


def test_what_is_mounted_is_a_volume(manifests: list[Manifest]) -> None:
    pod = only(manifests, "Deployment")["spec"]["template"]["spec"]
    volumes = {volume["name"] for volume in pod["volumes"]}
    containers = [*pod["containers"], *pod.get("initContainers", [])]
    mounts = [mount["name"] for each in containers for mount in each["volumeMounts"]]
    assert {"shm", "tmp", "home"} <= volumes
    assert set(mounts) == volumes


@pytest.mark.contract("R-34", "K-21", "SEC-11")
def test_a_volume_claim_is_a_repository_that_no_pod_writes_to() -> None:
    manifests = render({"models": {"source": "pvc", "pvc": {"claimName": "nfs", "subPath": "llm"}}})
    server = container(manifests)
    volumes = only(manifests, "Deployment")["spec"]["template"]["spec"]["volumes"]
    (claim,) = [each for each in volumes if "persistentVolumeClaim" in each]
    (mount,) = [each for each in server["volumeMounts"] if each["name"] == claim["name"]]
    settings = parse_arguments(server["args"], {}, print)
    assert claim["persistentVolumeClaim"] == {"claimName": "nfs", "readOnly": True}
    assert (mount["subPath"], mount["readOnly"]) == ("llm", True)
    assert [str(path) for path in settings.repository.paths] == [mount["mountPath"]]


@pytest.mark.contract("K-16")
def test_gpus_are_a_limit() -> None:
    limits = container(render({"gpu": {"count": 2}}))["resources"]["limits"]
    assert limits == {"memory": "4Gi", "nvidia.com/gpu": 2}


def test_everything_selects_the_pods(manifests: list[Manifest]) -> None:
    labels = only(manifests, "Deployment")["spec"]["template"]["metadata"]["labels"]
    selectors = [*map(_selector, manifests)]
    assert len([each for each in selectors if each]) >= 2
    assert [each for each in selectors if not each.items() <= labels.items()] == []


def _selector(manifest: Manifest) -> dict[str, str]:
    """The labels that a manifest's pods have; a monitor of services selects these."""
    if manifest["kind"] == "ServiceMonitor":
        return {}
    spec = manifest.get("spec", {})
    found: dict[str, str] = spec.get("podSelector", spec.get("selector", {}))
    labels: dict[str, str] = found.get("matchLabels", found)  # type: ignore[assignment]
    return labels


@pytest.mark.contract("K-11")
def test_monitor_of_services_scrapes_one_of_two() -> None:
    manifests = render({"monitor": {"kind": "service"}, "headless": {"enabled": True}})
    monitor = only(manifests, "ServiceMonitor")["spec"]
    labels = monitor["selector"]["matchLabels"].items()
    services = [each for each in manifests if each["kind"] == "Service"]
    chosen = [each for each in services if labels <= each["metadata"]["labels"].items()]
    assert [len(services), len(chosen)] == [2, 1]
    (endpoint,) = monitor["endpoints"]
    assert (endpoint["port"], endpoint["interval"]) == ("metrics", "15s")
    assert "metrics" in {port["name"] for port in chosen[0]["spec"]["ports"]}


@pytest.mark.contract("K-12")
def test_headless_service_resolves_to_pods() -> None:
    manifests = render({"headless": {"enabled": True}, "monitor": {"kind": "pod"}})
    services = [each for each in manifests if each["kind"] == "Service"]
    headless = {each["metadata"]["name"]: each["spec"].get("clusterIP") for each in services}
    ports = [[port["port"] for port in each["spec"]["ports"]] for each in services]
    assert headless == {"demo-penstock": None, "demo-penstock-headless": "None"}
    assert ports == [[8000, 8001, 8002]] * 2


@pytest.mark.contract("K-12")
def test_plain_grpc_is_announced_as_http2() -> None:
    ports = {port["name"]: port for port in only(render({}), "Service")["spec"]["ports"]}
    assert ports["grpc"]["appProtocol"] == "kubernetes.io/h2c"


@pytest.mark.contract("K-09")
def test_autoscaler_asks_for_the_metric_of_the_adapter() -> None:
    manifests = render(VARIANTS["autoscaling and policies"])
    scaler = only(manifests, "HorizontalPodAutoscaler")["spec"]
    adapter = yaml.safe_load((CHART.parent / "prometheus-adapter.yaml").read_text())
    names = {rule["name"]["as"] for rule in adapter["rules"]["custom"]}
    metrics = {metric["type"]: metric for metric in scaler["metrics"]}
    assert metrics["Pods"]["pods"]["metric"]["name"] in names
    assert metrics["Pods"]["pods"]["target"]["averageValue"] == "50000"
    assert metrics["Resource"]["resource"]["target"]["averageUtilization"] == 70
    assert "replicas" not in only(manifests, "Deployment")["spec"]


@pytest.mark.contract("K-07", "K-09")
def test_values_of_tritons_chart_have_their_places() -> None:
    """Its image, GPUs, arguments and autoscaler: one to three pods, 50 us in the queue."""
    values = {
        "image": {"repository": "registry.example.org/penstock", "tag": "1"},
        "gpu": {"count": 1},
        "server": {"extraArgs": ["--log-verbose=1"]},
        "monitor": {"kind": "pod"},
        "autoscaling": {
            "enabled": True,
            "minReplicas": 1,
            "maxReplicas": 3,
            "cpuPercent": 0,
            "queueMicroseconds": 50,
        },
    }
    manifests = render(values)
    server, scaler = container(manifests), only(manifests, "HorizontalPodAutoscaler")["spec"]
    assert server["image"] == "registry.example.org/penstock:1"
    assert server["resources"]["limits"]["nvidia.com/gpu"] == 1
    assert parse_arguments(server["args"], {}, print).logging.verbose == 1
    assert (scaler["minReplicas"], scaler["maxReplicas"]) == (1, 3)
    metric = {"metric": {"name": "avg_time_queue_us"}}
    target = {"target": {"type": "AverageValue", "averageValue": "50"}}
    assert scaler["metrics"] == [{"type": "Pods", "pods": {**metric, **target}}]


@pytest.mark.contract("K-10")
def test_metrics_from_outside_of_the_cluster_scale_too() -> None:
    """Such as how busy GPUs are, as a cloud measures it."""
    busy = {
        "type": "External",
        "external": {
            "metric": {"name": "kubernetes.io|container|accelerator|duty_cycle"},
            "target": {"type": "AverageValue", "averageValue": "85"},
        },
    }
    values = {"autoscaling": {"enabled": True, "cpuPercent": 0, "metrics": [busy]}}
    manifests = render(values)
    scaler = only(manifests, "HorizontalPodAutoscaler")
    kubernetes_validate.validate(scaler, "1.37", strict=True)
    assert scaler["spec"]["metrics"] == [busy]


def test_ingress_leads_to_the_port_of_its_protocol() -> None:
    manifests = render(VARIANTS["TLS and ingress"])
    ingresses = [each["spec"] for each in manifests if each["kind"] == "Ingress"]
    hosts = {rule["host"]: rule["http"] for spec in ingresses for rule in spec["rules"]}
    ports = {
        host: rule["paths"][0]["backend"]["service"]["port"]["name"] for host, rule in hosts.items()
    }
    assert ports == {"http.example.org": "http", "grpc.example.org": "grpc"}


def test_models_of_a_config_map_are_a_repository(tmp_path: Path) -> None:
    """Laid out as the kubelet does, with the links by which it changes all files at once."""
    manifests = render(VARIANTS["models in a ConfigMap"])
    volumes = only(manifests, "Deployment")["spec"]["template"]["spec"]["volumes"]
    source = next(volume["configMap"] for volume in volumes if volume["name"] == "models")
    texts = only(manifests, "ConfigMap")["data"]
    for item in source["items"]:
        file = tmp_path / "..2026_11_26" / item["path"]
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(texts[item["key"]])
    (tmp_path / "..data").symlink_to("..2026_11_26")
    (tmp_path / "echo").symlink_to("..data/echo")
    assert only(manifests, "ConfigMap")["metadata"]["name"] == source["name"]
    repository = ModelRepository([tmp_path])
    assert repository.names() == ["echo"]
    assert [*repository.read("echo").versions] == [1]


def test_models_of_a_store_are_no_volume() -> None:
    server = container(render(VARIANTS["cloud repository"]))
    settings = parse_arguments(server["args"], {}, print)
    assert [str(path) for path in settings.repository.paths] == ["s3://bucket/models"]
    assert {mount["name"] for mount in server["volumeMounts"]} == {"shm", "tmp", "home"}


@pytest.mark.contract("K-13", "K-21")
@pytest.mark.parametrize(
    "address", ["s3://bucket/models", "gs://bucket/models", "as://account/container/models"]
)
def test_models_of_any_cloud_are_polled_with_the_credentials_of_a_secret(address: str) -> None:
    """As Triton's chart for Amazon's cloud does: every five seconds."""
    values = {
        "models": {"source": "url", "url": address},
        "server": {"modelControlMode": "poll", "extraArgs": ["--repository-poll-secs=5"]},
        "envFrom": [{"secretRef": {"name": "cloud-credentials"}}],
    }
    server = container(render(values))
    repository = parse_arguments(server["args"], {}, print).repository
    assert [str(path) for path in repository.paths] == [address]
    assert (repository.control_mode, repository.poll_seconds) == (ModelControlMode.POLL, 5)
    assert server["envFrom"] == [{"secretRef": {"name": "cloud-credentials"}}]


@pytest.mark.contract("K-16")
@pytest.mark.parametrize(
    ("variant", "resource", "count"),
    [("MIG slices", "nvidia.com/mig-1g.10gb", 2), ("shared GPU", "nvidia.com/gpu.shared", 1)],
)
def test_parts_of_gpus_are_limits(variant: str, resource: str, count: int) -> None:
    assert container(render(VARIANTS[variant]))["resources"]["limits"][resource] == count


def test_helm_test_asks_the_service_and_is_no_server() -> None:
    manifests = render(VARIANTS["TLS and ingress"])
    pod, service = only(manifests, "Pod"), only(manifests, "Service")
    *_, url, header = pod["spec"]["containers"][0]["args"]
    assert (url, header) == ("https://demo-penstock:8000/v2/health/ready", "health=yes")
    assert service["metadata"]["name"] in url
    assert not service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
    assert pod["metadata"]["annotations"]["helm.sh/hook"] == "test"


def test_change_of_the_files_is_a_rollout_unless_the_server_polls() -> None:
    def annotations(text: str, mode: str) -> dict[str, str]:
        models = {"source": "configMap", "configMap": {"files": {"m/config.pbtxt": text}}}
        deployment = only(
            render({"models": models, "server": {"modelControlMode": mode}}), "Deployment"
        )
        found: dict[str, str] = deployment["spec"]["template"]["metadata"]["annotations"]
        return found

    assert annotations("one", "none") != annotations("two", "none")
    assert annotations("one", "poll") == annotations("two", "poll")


def test_chart_is_of_the_version_of_the_server() -> None:
    assert yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"] == __version__
