"""What a cluster refuses and keeps: admission, rights, quotas, disruption, room on nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deployment.chart import render
from deployment.raw_manifests import KUBECTL, OVERLAYS, built
from kube.api import Api, ApiError, Object
from kube.cluster import Cluster, new_namespace, wait_for
from kube.nodes import ready
from kube.releases import FULL_NAME, HelmError, Release


@dataclass(frozen=True, slots=True)
class Check:
    """Something that was asked of a cluster, what it said, and whether that was to be said."""

    about: str
    said: str
    right: bool

    HEADS = ("what", "what was said", "as expected")

    @property
    def cells(self) -> Sequence[str]:
        """The row."""
        return self.about, self.said, "yes" if self.right else "NO"


def checks(cluster: Cluster, folder: Path) -> Iterator[Check]:
    """Ask all of it, each in a namespace of its own."""
    for number, check in enumerate(_CHECKS, 1):
        namespace = new_namespace(cluster.api, f"check-{number}")
        release = Release(cluster, namespace, folder)
        yield from check(release)
        cluster.api.delete("v1/namespaces", namespace)


def _said(about: str, said: str, *expected: str) -> Check:
    return Check(about, said or "nothing", all(each in said for each in expected))


def _refusal(call: Callable[[], object]) -> str:
    try:
        call()
    except (ApiError, HelmError) as error:
        return str(error)
    return "taken"


def _wait_for_text(ask: Callable[[], str]) -> str:
    """What is said, once something is."""
    wait_for(ask, 60)
    return ask()


# -- values and manifests -------------------------------------------------------------------------

_WRONG: Mapping[str, tuple[Mapping[str, Any], Sequence[str]]] = {
    "a value that there is not": ({"replica": 2}, ("replica",)),
    "a value of the wrong type": ({"replicas": "two"}, ("replicas", "integer")),
    "a source of models that there is not": ({"models": {"source": "s3"}}, ("source",)),
    "an address without a scheme": (
        {"models": {"source": "url", "url": "bucket/models"}},
        ("url",),
    ),
    "TLS without a secret": ({"tls": {"enabled": True}}, ("tls.secretName is needed",)),
}


def _wrong_values(release: Release) -> Iterator[Check]:
    for about, (values, expected) in _WRONG.items():
        said = _refusal(lambda values=values: release.install(values))  # type: ignore[misc]
        yield _said(f"the chart with {about}", said, *expected)


def _strict(release: Release) -> Iterator[Check]:
    """The API server's own words on what the chart hands through unread."""
    (deployment,) = (
        each
        for each in render({"podSecurityContext": {"runAsNobody": True}})
        if each["kind"] == "Deployment"
    )
    said = _refusal(lambda: release.api.apply(deployment, release.namespace, dry_run=True))
    yield _said("`podSecurityContext.runAsNobody`", said, "runAsNobody", "not declared in schema")


def _immutable(release: Release) -> Iterator[Check]:
    release.install({})
    said = _refusal(
        lambda: release.upgrade({"nameOverride": "other", "fullnameOverride": FULL_NAME})
    )
    yield _said("an upgrade with another `nameOverride`", said, "field is immutable")
    stored = release.deployment()["spec"]
    defaulted = {
        "revisionHistoryLimit": stored["revisionHistoryLimit"],
        "dnsPolicy": stored["template"]["spec"]["dnsPolicy"],
        "schedulerName": stored["template"]["spec"]["schedulerName"],
        "successThreshold": _container(stored)["readinessProbe"]["successThreshold"],
    }
    said = ", ".join(f"{name} {value}" for name, value in defaulted.items())
    yield _said("defaults that the server added", said, "ClusterFirst")


def _container(deployment: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = deployment["template"]["spec"]["containers"][0]
    return found


def _raw(release: Release) -> Iterator[Check]:
    """What kustomize makes of the manifests beside the chart."""
    for overlay in ("base", *OVERLAYS):
        about = f"`kubectl kustomize deploy/kubernetes/{overlay}`"
        if not KUBECTL:
            yield Check(about, "LEFT OUT: there is no kubectl", right=True)
            continue
        said = [release.api.apply(each, release.namespace).warnings for each in built(overlay)]
        refused = [warning for warnings in said for warning in warnings]
        yield Check(about, "; ".join([f"{len(said)} objects taken", *refused]), right=not refused)


# -- who may what ---------------------------------------------------------------------------------


def _rights(release: Release) -> Iterator[Check]:
    api, space = release.api, release.namespace
    for user, role in (("deployer", "edit"), ("viewer", "view")):
        api.apply(_binding(user, role), space)
    manifests = render({"podDisruptionBudget": {"enabled": True}, **_SCALED})
    deployer, viewer = api.user("deployer"), api.user("viewer")
    said = {_refusal(lambda m=m: deployer.apply(m, space, dry_run=True)) for m in manifests}  # type: ignore[misc]
    yield _said("the chart by a user with the role `edit`", ", ".join(said), "taken")
    said_to = _refusal(lambda: viewer.apply(manifests[0], space, dry_run=True))
    yield _said("the chart by a user with the role `view`", said_to, "forbidden", "viewer")
    for each in (deployer, viewer):
        each.close()
    account = f"system:serviceaccount:{space}:default"
    may = _may(api, account, space, "get", "secrets") or _may(api, account, space, "list", "pods")
    yield _said("the pods' service account: secrets, pods", f"allowed: {may}", "False")
    release.install({})
    release.wait_rolled_out()
    volumes = [each["name"] for each in release.pods()[0]["spec"]["volumes"]]
    yield Check(
        "volumes of an admitted pod: no token",
        ", ".join(volumes),
        not any(name.startswith("kube-api-access") for name in volumes),
    )


_SCALED = {"autoscaling": {"enabled": True}, "networkPolicy": {"enabled": True}}


def _binding(user: str, role: str) -> Object:
    group = "rbac.authorization.k8s.io"
    return {
        "apiVersion": f"{group}/v1",
        "kind": "RoleBinding",
        "metadata": {"name": user},
        "subjects": [{"kind": "User", "name": user, "apiGroup": group}],
        "roleRef": {"kind": "ClusterRole", "name": role, "apiGroup": group},
    }


def _may(api: Api, user: str, namespace: str, verb: str, resource: str) -> bool:
    asked = {"namespace": namespace, "verb": verb, "resource": resource}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": user, "resourceAttributes": asked},
    }
    path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    allowed: bool = api.call("POST", path, review).json()["status"]["allowed"]
    return allowed


# -- pods that are not admitted -------------------------------------------------------------------


def _not_admitted(release: Release) -> Iterator[Check]:
    cases: Sequence[tuple[str, Mapping[str, Any], Sequence[str]]] = (
        (
            "a folder of the node, in a restricted namespace",
            {"models": {"source": "hostPath", "hostPath": "/srv"}},
            ("violates PodSecurity", "hostPath"),
        ),
        ("a runtime class that there is not", {"runtimeClassName": "none"}, ("none", "not found")),
        ("a priority that there is not", {"priorityClassName": "none"}, ("no PriorityClass",)),
    )
    for about, values, expected in cases:
        release.install(values)
        yield _said(about, _wait_for_text(release.refusal), *expected)
        release.uninstall()


def _quota(release: Release) -> Iterator[Check]:
    hard = {"requests.nvidia.com/gpu": "4", "limits.memory": "12Gi"}
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "gpus"},
        "spec": {"hard": hard},
    }
    release.api.apply(quota, release.namespace)
    used = "v1/resourcequotas"
    wait_for(lambda: release.api.get(used, "gpus", release.namespace).get("status", {}).get("used"))
    release.install({"replicas": 2, "gpu": {"count": 4}})
    said = _wait_for_text(release.refusal)
    yield _said("two pods of four GPUs, where a quota has four", said, "exceeded quota: gpus")
    wait_for(lambda: release.ready() == 1)
    release.uninstall()
    wait_for(lambda: not release.pods())
    release.install({"gpu": {"count": 2}})
    release.wait_rolled_out()
    release.upgrade({"gpu": {"count": 2}, "podAnnotations": {"version": "2"}})
    yield Check(
        "a rollout of a pod of two GPUs, with another one meanwhile",
        f"rolled out in {release.wait_rolled_out():.1f} s",
        right=True,
    )


# -- room, and who may be driven out --------------------------------------------------------------


def _room(release: Release) -> Iterator[Check]:
    release.install({"replicas": 5, "gpu": {"count": 4}})
    said = _wait_for_text(release.unscheduled)
    wait_for(lambda: release.ready() == 4)
    yield _said(
        "five pods of four GPUs, of which there are 16", said, "Insufficient nvidia.com/gpu"
    )
    release.upgrade({"replicas": 4, "gpu": {"count": 4}})
    release.wait_rolled_out()
    release.upgrade({"replicas": 4, "gpu": {"count": 4}, "podAnnotations": {"version": "2"}})
    said = _wait_for_text(release.unscheduled)
    yield _said("a rollout on GPUs that are all taken", said, "Insufficient nvidia.com/gpu")
    strategy = {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}
    values = {"replicas": 4, "gpu": {"count": 4}, "strategy": strategy}
    release.upgrade({**values, "podAnnotations": {"version": "3"}})
    yield Check(
        "the same with `maxSurge: 0` and `maxUnavailable: 1`",
        f"rolled out in {release.wait_rolled_out():.1f} s",
        right=True,
    )


def _disruption(release: Release) -> Iterator[Check]:
    release.install({"replicas": 3, "podDisruptionBudget": {"enabled": True}})
    release.wait_rolled_out()
    budgets = "policy/v1/poddisruptionbudgets"

    def allowed() -> int:
        status = release.api.get(budgets, FULL_NAME, release.namespace).get("status", {})
        return int(status.get("disruptionsAllowed", 0))

    wait_for(lambda: allowed() == 1)
    pods = [pod["metadata"]["name"] for pod in ready(release.pods())]
    first, second = (_refusal(lambda pod=pod: _evict(release, pod)) for pod in pods[:2])  # type: ignore[misc]
    yield _said("one of three pods is driven out", first, "taken")
    yield _said("and at once another one", second, "violate the pod's disruption budget")


def _evict(release: Release, pod: str) -> None:
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod, "namespace": release.namespace},
    }
    release.api.call(
        "POST", f"/api/v1/namespaces/{release.namespace}/pods/{pod}/eviction", eviction
    )


_CHECKS = (
    _wrong_values,
    _strict,
    _immutable,
    _raw,
    _rights,
    _not_admitted,
    _quota,
    _room,
    _disruption,
)
