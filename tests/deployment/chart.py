"""The Helm chart's manifests, as Helm renders them with values of ours."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from programs.places import find

CHART = Path(__file__).parents[2] / "deploy" / "helm" / "penstock"

_HELM = find("helm")

needs_helm = pytest.mark.needs("helm", "" if _HELM else "there is no Helm: `make tools` says why")

Manifest = dict[str, Any]

_CHANGING = "model-repository,shared-memory,logging,trace"

VARIANTS: Mapping[str, Mapping[str, Any]] = {
    "defaults": {},
    "GPU and volume claim": {
        "gpu": {"count": 4},
        "models": {"source": "pvc", "pvc": {"claimName": "models", "subPath": "llm"}},
        "runtimeClassName": "nvidia",
        "nodeSelector": {"gpu": "h100"},
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
        "env": [{"name": "HF_HOME", "value": "/models/hub"}],
        "shm": {"sizeLimit": "16Gi"},
    },
    "TLS and ingress": {
        "tls": {"enabled": True, "secretName": "certificate", "grpcClientCertificates": True},
        "probes": {"headers": [{"name": "health", "value": "yes"}]},
        "ingress": {
            "tlsSecret": "public",
            "http": {"enabled": True, "host": "http.example.org"},
            "grpc": {"enabled": True, "host": "grpc.example.org"},
        },
        "server": {
            "extraArgs": [
                f"--http-restricted-api={_CHANGING},engine-control:admin=$ADMIN",
                f"--grpc-restricted-protocol={_CHANGING}:admin=$ADMIN",
            ]
        },
        "service": {"sessionAffinity": "ClientIP", "annotations": {"a": "b"}},
    },
    "autoscaling and policies": {
        "autoscaling": {"enabled": True, "queueMicroseconds": 50000},
        "podDisruptionBudget": {"enabled": True},
        "headless": {"enabled": True},
        "networkPolicy": {
            "enabled": True,
            "clients": [{"podSelector": {"matchLabels": {"app": "gateway"}}}],
            "metrics": [{"namespaceSelector": {}}],
        },
        "serviceAccount": {"create": True, "annotations": {"role": "reader"}},
        "monitor": {"kind": "pod", "labels": {"release": "prometheus"}},
        "priorityClassName": "high",
        "podLabels": {"team": "search"},
    },
    "access policy": {
        "access": {"secretName": "policy"},
        "security": {"secure": True},
    },
    "models in a ConfigMap": {
        "models": {
            "source": "configMap",
            "configMap": {
                "files": {
                    "echo/config.pbtxt": 'backend: "identity"\n',
                    "echo/1/note.txt": "versions are folders, which need a file here\n",
                }
            },
        },
        "monitor": {"kind": "service"},
        "server": {"extraArgs": ["--log-format=json", "--metrics-config=summary_latencies=true"]},
    },
    "models of an init container": {
        "models": {"source": "emptyDir", "emptyDir": {"sizeLimit": "50Gi"}},
        "initContainers": [
            {
                "name": "fetch",
                "image": "fetch",
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "capabilities": {"drop": ["ALL"]},
                },
                "volumeMounts": [{"name": "models", "mountPath": "/models"}],
            }
        ],
        "server": {"modelControlMode": "explicit", "loadModels": ["encoder", "ranker"]},
    },
    "hardened, with TLS": {
        "security": {
            "secure": True,
            "restrictions": [
                {
                    "header": "admin",
                    "secretName": "penstock",
                    "secretKey": "admin",
                    "groups": ["model-repository", "statistics"],
                },
            ],
        },
        "server": {"modelControlMode": "explicit"},
        "tls": {"enabled": True, "secretName": "certificate"},
        "monitor": {"kind": "pod"},
        "networkPolicy": {"enabled": True, "egress": [{"ports": [{"port": 53}]}]},
    },
    "hardened, with secrets": {
        "security": {
            "secure": True,
            "restrictions": [
                {"header": "asks", "secretName": "users", "secretKey": "key"},
                {
                    "header": "probes",
                    "secretName": "users",
                    "secretKey": "other",
                    "groups": ["metadata"],
                },
            ],
        },
        "env": [{"name": "HF_HOME", "value": "/models/hub"}],
        "networkPolicy": {"enabled": True, "egress": []},
    },
    "MIG slices": {"gpu": {"count": 2, "resource": "nvidia.com/mig-1g.10gb"}},
    "shared GPU": {"gpu": {"count": 1, "resource": "nvidia.com/gpu.shared"}},
    "cloud repository": {
        "models": {"source": "url", "url": "s3://bucket/models"},
        "serviceAccount": {"create": True, "annotations": {"role-arn": "reader"}},
        "envFrom": [{"secretRef": {"name": "store"}}],
        "scratch": {"cache": {"sizeLimit": "50Gi"}},
    },
    "models of the node": {"models": {"source": "hostPath", "hostPath": "/srv/models"}},
}
"""Values, by what they are for."""


def helm(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """A command of Helm that has ended."""
    return subprocess.run([_HELM, *arguments], capture_output=True, text=True, check=False)


def template(folder: Path, values: Mapping[str, Any]) -> subprocess.CompletedProcess[str]:
    """Helm's manifests of the chart, or its error."""
    file = folder / "values.yaml"
    file.write_text(json.dumps(values))  # which is YAML, too
    return helm("template", "demo", CHART, "--namespace", "models", "--values", file)


def only(manifests: list[Manifest], kind: str) -> Manifest:
    """The one manifest of a kind."""
    (found,) = (manifest for manifest in manifests if manifest["kind"] == kind)
    return found


def container(manifests: list[Manifest]) -> dict[str, Any]:
    """The container of the server."""
    pod = only(manifests, "Deployment")["spec"]["template"]["spec"]
    found: dict[str, Any] = pod["containers"][0]
    return found


@cache
def _read(values: str) -> list[Manifest]:
    with tempfile.TemporaryDirectory() as folder:
        done = template(Path(folder), json.loads(values))
    assert done.returncode == 0, done.stderr
    return [manifest for manifest in yaml.safe_load_all(done.stdout) if manifest]


def render(values: Mapping[str, Any]) -> list[Manifest]:
    """The manifests with these values; fails the test if Helm refuses them."""
    return _read(json.dumps(values))
