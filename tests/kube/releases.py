"""Releases of the chart in a cluster, by Helm, and the tables that a run prints."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deployment.chart import CHART, helm
from kube.api import Api, Object, condition
from kube.cluster import Cluster, wait_for
from kube.nodes import ready

NAME = "demo"
FULL_NAME = "demo-penstock"
SELECTOR = f"app.kubernetes.io/name=penstock,app.kubernetes.io/instance={NAME}"


class HelmError(Exception):
    """Helm, or the API server through it, refused a change; the message is theirs."""


@dataclass(frozen=True, slots=True)
class Release:
    """The release `demo` of a namespace."""

    cluster: Cluster
    namespace: str
    folder: Path

    @property
    def api(self) -> Api:
        """The administrator's."""
        return self.cluster.api

    def install(self, values: Mapping[str, Any]) -> Any:
        """Install the chart with these values."""
        return self._run("install", str(CHART), "--values", str(self._write(values)))

    def upgrade(self, values: Mapping[str, Any]) -> Any:
        """Upgrade it to these values."""
        return self._run("upgrade", str(CHART), "--values", str(self._write(values)))

    def roll_back(self, revision: int) -> Any:
        """Go back to a revision, which makes a new one."""
        return self._run("rollback", str(revision))

    def uninstall(self) -> Any:
        """Remove it."""
        return self._run("uninstall")

    def test(self) -> Any:
        """Run the tests that the chart brings."""
        return self._run("test")

    def _run(self, command: str, *arguments: str) -> Any:
        place = ("--namespace", self.namespace, "--kubeconfig", str(self.cluster.kubeconfig))
        done = helm(command, NAME, *arguments, *place)
        if done.returncode:
            raise HelmError(done.stderr.strip().removeprefix("Error: "))
        return json.loads(done.stdout)

    def _write(self, values: Mapping[str, Any]) -> Path:
        file = self.folder / f"{self.namespace}-values.yaml"
        file.write_text(json.dumps(values))
        return file

    # -- what became of it

    def deployment(self) -> Object:
        """Its Deployment."""
        return self.api.get("apps/v1/deployments", FULL_NAME, self.namespace)

    def pods(self) -> list[Object]:
        """Its pods."""
        return self.api.list("v1/pods", self.namespace, SELECTOR)

    def wait_rolled_out(self, seconds: float = 240.0) -> float:
        """Wait until it has the pods that it wants, and no others; the seconds that it took."""
        began = time.monotonic()
        wait_for(self.rolled_out, seconds, f"the rollout of {self.namespace}")
        return time.monotonic() - began

    def rolled_out(self) -> bool:
        """Whether it has the pods that it wants, all new and ready, and no others."""
        found = self.deployment()
        wanted, status = found["spec"]["replicas"], found.get("status", {})
        counts = [status.get(key, 0) for key in ("replicas", "updatedReplicas", "readyReplicas")]
        seen = status.get("observedGeneration") == found["metadata"]["generation"]
        return seen and counts == [wanted] * 3 and len(self.pods()) == wanted

    def ready(self) -> int:
        """How many pods are ready."""
        return len(ready(self.pods()))

    def template_hash(self) -> str:
        """The name that the Deployment gives to the template of its newest pods."""
        found = self.deployment()
        sets = self.api.list("apps/v1/replicasets", self.namespace)
        revision = found["metadata"]["annotations"]["deployment.kubernetes.io/revision"]
        (newest,) = (
            each
            for each in sets
            if each["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == revision
        )
        name: str = newest["metadata"]["labels"]["pod-template-hash"]
        return name

    def refusal(self) -> str:
        """Why the API server does not let the Deployment have its pods; empty if it does."""
        failed = condition(self.deployment(), "ReplicaFailure")
        message: str = failed.get("message", "") if failed.get("status") == "True" else ""
        return message

    def unscheduled(self) -> str:
        """Why a pod has no node, in the scheduler's words; empty if all have one."""
        found = (condition(pod, "PodScheduled") for pod in self.pods())
        return next((each["message"] for each in found if each.get("status") == "False"), "")


# -- tables ---------------------------------------------------------------------------------------


def table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table as Markdown has it."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(_cell(each) for each in line)} |" for line in lines)


def _cell(value: object) -> str:
    text = f"{value:.1f}" if isinstance(value, float) else str(value)
    return " ".join(text.replace("|", "\\|").split())
