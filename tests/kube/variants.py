"""Every variant of the chart in a cluster: installed, upgraded, rolled back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deploy.observability.programs import StackError
from deployment.chart import VARIANTS, Manifest, render
from kube.api import Api, ApiError, Object
from kube.cluster import Cluster, exists, new_namespace, wait_for
from kube.nodes import Nodes
from kube.releases import Release

FURTHER: Mapping[str, Mapping[str, Any]] = {
    "spread over zones": {
        "replicas": 4,
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "topology.kubernetes.io/zone",
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": {"app.kubernetes.io/instance": "demo"}},
            }
        ],
    },
}
"""Variants of values that only a scheduler has an opinion on."""

_CLUSTER_WIDE: Sequence[Object] = (
    {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": "nvidia"},
        "handler": "nvidia",
    },
    {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "high"},
        "value": 1000,
    },
)
_MONITORS = "monitoring.coreos.com/v1"


def add_nodes(nodes: Nodes) -> None:
    """Nodes with CPUs alone, with GPUs in two zones, with slices, and with a shared GPU."""
    nodes.add("cpu-a", "a")
    nodes.add("cpu-b", "b")
    nodes.add("gpu-a", "a", **{"nvidia.com/gpu": "8"})
    nodes.add("gpu-b", "b", **{"nvidia.com/gpu": "8"})
    nodes.add("mig-a", "a", **{"nvidia.com/mig-1g.10gb": "7"})
    nodes.add("shared-b", "b", **{"nvidia.com/gpu.shared": "4"})


def prepare(api: Api) -> None:
    """What variants name and a cluster has once: classes, and labels of nodes with GPUs."""
    for manifest in _CLUSTER_WIDE:
        api.apply(manifest)
    for name in ("gpu-a", "gpu-b"):
        api.patch("v1/nodes", name, {"metadata": {"labels": {"gpu": "h100"}}})


def prepare_namespace(api: Api, namespace: str) -> None:
    """What variants name in their namespace: a volume claim, and secrets."""
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": f"models-of-{namespace}"},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadOnlyMany"],
            "hostPath": {"path": "/srv/models"},
            "claimRef": {"namespace": namespace, "name": "models"},
        },
    }
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "models"},
        "spec": {
            "accessModes": ["ReadOnlyMany"],
            "storageClassName": "",
            "volumeName": f"models-of-{namespace}",
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }
    api.apply(volume)
    api.apply(claim, namespace)
    claims = "v1/persistentvolumeclaims"
    wait_for(lambda: api.get(claims, "models", namespace)["status"].get("phase") == "Bound", 60)


@dataclass(frozen=True, slots=True)
class Said:
    """What the API server, the scheduler and Helm said of a variant."""

    variant: str
    kinds: str
    warnings: str
    pods: str
    upgraded: str
    rolled_back: str

    HEADS = ("variant", "objects", "warnings", "pods", "upgrade from the defaults", "rollback")

    @property
    def cells(self) -> Sequence[str]:
        """The row."""
        return (
            self.variant,
            self.kinds,
            self.warnings,
            self.pods,
            self.upgraded,
            self.rolled_back,
        )


def variants(cluster: Cluster, folder: Path) -> Iterator[Said]:
    """Try each variant in a namespace of its own, in which pods have to be restricted ones."""
    chosen = {**VARIANTS, **FURTHER}
    for number, (name, values) in enumerate(chosen.items(), 1):
        namespace = new_namespace(cluster.api, f"variant-{number}")
        prepare_namespace(cluster.api, namespace)
        release = Release(cluster, namespace, folder)
        yield _try(release, name, values)
        release.uninstall()
        cluster.api.delete("v1/namespaces", namespace)


def _try(release: Release, name: str, values: Mapping[str, Any]) -> Said:
    values, left_out = _known(release.api, values)
    warnings, manifests = _dry_run(release, values)
    release.install({})
    release.wait_rolled_out()
    before = release.template_hash()
    release.upgrade(values)
    pods = _settled(release)
    upgraded = f"new pods ({release.template_hash()})"
    if release.template_hash() == before:
        upgraded = "the same pods"
    again = release.deployment()["metadata"]["generation"]
    release.upgrade(values)
    if release.deployment()["metadata"]["generation"] != again:
        upgraded += "; AGAIN A ROLLOUT with the same values"
    release.roll_back(1)
    release.wait_rolled_out()
    back = "the pods of before" if release.template_hash() == before else "OTHER PODS"
    return Said(name, kinds_of(manifests) + left_out, warnings or "none", pods, upgraded, back)


def kinds_of(manifests: Sequence[Manifest]) -> str:
    """Kinds in order, each with how many there are of it if not one."""
    counts = sorted(Counter(str(each["kind"]) for each in manifests).items())
    return ", ".join(kind if count == 1 else f"{kind} ({count})" for kind, count in counts)


def _known(api: Api, values: Mapping[str, Any]) -> tuple[Mapping[str, Any], str]:
    """Values without the monitor where the cluster has no such kind."""
    if values.get("monitor") and not exists(
        api,
        "apiextensions.k8s.io/v1/customresourcedefinitions",
        "podmonitors.monitoring.coreos.com",
    ):
        address = {**values.get("security", {}), "metricsAddress": "0.0.0.0"}
        return {**values, "monitor": {"kind": "none"}, "security": address}, " (monitor left out)"
    return values, ""


def _dry_run(release: Release, values: Mapping[str, Any]) -> tuple[str, list[Manifest]]:
    """Have the server check each manifest strictly; its warnings."""
    manifests = render(values)
    found: list[str] = []
    for manifest in manifests:
        try:
            found += release.api.apply(manifest, release.namespace, dry_run=True).warnings
        except ApiError as error:
            found.append(f"{manifest['kind']} REFUSED: {error.message}")
    return "; ".join(found), manifests


def _settled(release: Release) -> str:
    """Where pods are once the rollout has come to its end, or what holds it up."""
    try:
        wait_for(lambda: release.refusal() or release.unscheduled() or release.rolled_out(), 60)
    except StackError as error:
        return f"UNDECIDED: {error}"
    if refused := release.refusal():
        return f"refused: {refused}"
    if pending := release.unscheduled():
        return f"pending: {pending}"
    places: dict[str, int] = {}
    for pod in release.pods():
        node = pod["spec"]["nodeName"]
        places[node] = places.get(node, 0) + 1
    qualities = {pod["status"]["qosClass"] for pod in release.pods()}
    where = ", ".join(f"{count} on {node}" for node, count in sorted(places.items()))
    return f"{where}; {', '.join(sorted(qualities))}"
