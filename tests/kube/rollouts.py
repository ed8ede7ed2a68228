"""Rollouts under load, each pod a real server: updates, scaling, a node's death."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kube.cluster import Cluster, new_namespace, wait_for
from kube.nodes import Nodes
from kube.releases import FULL_NAME, Release
from kube.scaling import metrics_api
from kube.traffic import MODELS, Load, Proxy, Tally, proxy

_LEAVE_SECONDS = 2
_GONE = [
    {
        "key": f"node.kubernetes.io/{state}",
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": 2,
    }
    for state in ("not-ready", "unreachable")
]
_VALUES: Mapping[str, Any] = {
    "models": {"source": "configMap", "configMap": {"files": MODELS}},
    "preStopSeconds": _LEAVE_SECONDS,
    "server": {"exitTimeoutSeconds": 20},
    "probes": {"readiness": {"periodSeconds": 1}},
    # Pods of a dead node are replaced after two seconds in place of five minutes.
    "tolerations": _GONE,
    "resources": {"requests": {"cpu": "2", "memory": "1Gi"}, "limits": {"memory": "1Gi"}},
}
_SLOW = """
import time

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            time.sleep(0.05)
            number = pb_utils.get_input_tensor_by_name(request, "NUMBER").as_numpy()
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("NUMBER", number)]))
        return answers
"""
_SLOW_CONFIG = """
backend: "python"
input { name: "NUMBER" data_type: TYPE_INT32 dims: [ 1, 1 ] }
output { name: "NUMBER" data_type: TYPE_INT32 dims: [ 1, 1 ] }
"""


# -- rollouts -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Event:
    """A change, the seconds until it was through, and what clients saw of it."""

    name: str
    pods: str
    seconds: float
    tally: Tally

    HEADS = (
        "what happened",
        "pods",
        "seconds",
        "calls",
        "failed",
        "wrong",
        "slowest, ms",
        "streams to their end",
        "streams cut",
    )

    @property
    def cells(self) -> Sequence[object]:
        """The row."""
        tally = self.tally
        return (
            self.name,
            self.pods,
            self.seconds,
            tally.calls,
            tally.failed,
            tally.wrong,
            f"{tally.slowest * 1000:.0f}",
            tally.streams,
            tally.cut,
        )


@contextmanager
def _released(
    cluster: Cluster, nodes: Nodes, folder: Path, namespace: str, values: Mapping[str, Any]
) -> Iterator[tuple[Release, Proxy]]:
    """A release whose pods are real servers, behind a proxy."""
    new_namespace(cluster.api, namespace)
    nodes.started.add(namespace)
    release = Release(cluster, namespace, folder)
    release.install(values)
    release.wait_rolled_out()
    with proxy(cluster.api, namespace, FULL_NAME, folder / f"proxy-{namespace}") as balanced:
        nodes.services[f"{FULL_NAME}:8000"] = balanced.http
        yield release, balanced
    release.uninstall()
    wait_for(lambda: not release.pods(), 120, "the end of the pods")


def rollouts(cluster: Cluster, nodes: Nodes, folder: Path) -> Iterator[Event]:
    """One change after the other, under one load."""
    started = {**_VALUES, "replicas": 3}
    with (
        _released(cluster, nodes, folder, "rollouts", started) as (release, balanced),
        Load(balanced) as load,
    ):

        def during(name: str, change: Callable[[], object], through: Callable[[], object]) -> Event:
            load.take()
            before, began = release.ready(), time.monotonic()
            change()
            through()
            seconds = time.monotonic() - began
            load.wait_for_streams()
            return Event(name, f"{before} -> {release.ready()}", seconds, load.take())

        def upgrade(**values: Any) -> Callable[[], object]:
            return lambda: release.upgrade({**_VALUES, **values})

        rolled = release.wait_rolled_out
        yield during("nothing", lambda: None, lambda: None)
        yield during("`helm test`", release.test, lambda: None)
        newer = {"version": "2"}
        yield during("rolling update", upgrade(replicas=3, podAnnotations=newer), rolled)
        yield during("rollback", lambda: release.roll_back(1), rolled)
        yield during("scale-down", upgrade(replicas=1), rolled)
        yield during("scale-up", upgrade(replicas=3), rolled)
        lost = release.pods()[0]["spec"]["nodeName"]
        yield during("a node's death", lambda: nodes.kill(lost), lambda: _replaced(release, lost))
        cluster.api.delete("v1/nodes", lost)
        for pod in release.pods():
            if pod["spec"].get("nodeName") == lost:
                name = pod["metadata"]["name"]
                cluster.api.delete("v1/pods", name, release.namespace, gracePeriodSeconds=0)


def _replaced(release: Release, node: str) -> None:
    """Wait until the pods of a dead node are had elsewhere."""

    def there() -> bool:
        elsewhere = [each for each in release.pods() if each["spec"].get("nodeName") != node]
        return len(elsewhere) == 3 and release.ready() == 3

    wait_for(there, 120, "new pods for those of the dead node")


# -- autoscaling ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Moment:
    """What the autoscaler knew and wanted at a time."""

    seconds: float
    clients: int
    waited: str
    wanted: int
    ready: int

    HEADS = ("second", "clients", "mean wait, ms, by pod", "pods wanted", "pods ready")

    @property
    def cells(self) -> Sequence[object]:
        """The row."""
        return self.seconds, self.clients, self.waited, self.wanted, self.ready


def autoscaling(cluster: Cluster, nodes: Nodes, folder: Path) -> Iterator[Moment | Tally]:
    """Moments in which something changed while clients come and go, and what these saw."""
    files = {"slow/config.pbtxt": _SLOW_CONFIG, "slow/1/model.py": _SLOW}
    values = {
        **_VALUES,
        "models": {"source": "configMap", "configMap": {"files": files}},
        "security": {"metricsAddress": "0.0.0.0"},
        "autoscaling": {
            "enabled": True,
            "maxReplicas": 3,
            "cpuPercent": 0,
            "queueMicroseconds": 50_000,
            "behavior": {"scaleDown": {"stabilizationWindowSeconds": 5}},
        },
    }
    clients = 8
    with (
        _released(cluster, nodes, folder, "autoscaling", values) as (release, balanced),
        metrics_api(cluster.api, release.namespace, folder) as metrics,
    ):
        began = time.monotonic()

        def now(count: int) -> Moment:
            waits = [f"{mean / 1000:.0f}" for mean in metrics.means().values()]
            wanted = release.deployment()["spec"]["replicas"]
            passed = time.monotonic() - began
            return Moment(passed, count, ", ".join(waits), wanted, release.ready())

        def until(count: int, enough: Callable[[Moment], bool], seconds: float) -> Iterator[Moment]:
            end, last = time.monotonic() + seconds, (-1, -1)
            while time.monotonic() < end:
                moment = now(count)
                if (moment.wanted, moment.ready) != last:
                    last = moment.wanted, moment.ready
                    yield moment
                if enough(moment):
                    return
                time.sleep(0.25)

        yield from until(0, lambda moment: moment.ready == 1, 60)
        with Load(balanced, grpc=clients, http=0, streams=0, model="slow", pause=0.001) as load:
            yield from until(clients, lambda moment: moment.ready == 3, 180)
            wait_for(lambda: len([each for each in metrics.means().values() if each]) == 3, 60)
            yield now(clients)
            yield load.take()
        yield from until(0, lambda moment: (moment.wanted, moment.ready) == (1, 1), 150)
