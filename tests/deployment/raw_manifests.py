"""Manifests without Helm, `deploy/kubernetes`: written from the chart, built by kustomize.

PYTHONPATH=tests:. .venv/bin/python tests/deployment/raw_manifests.py    write `base` anew
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from typing import Any

import yaml

from deployment.chart import CHART, Manifest, render

FOLDER = CHART.parents[1] / "kubernetes"
_HELMS = ("app.kubernetes.io/managed-by", "helm.sh/chart")
_HEAD = "# Written from the chart by tests/deployment/raw_manifests.py; changes belong there.\n"

OVERLAYS: Mapping[str, Mapping[str, Any]] = {
    "gpu": {
        "gpu": {"count": 1},
        "models": {"source": "pvc", "pvc": {"claimName": "models"}},
        "shm": {"sizeLimit": "16Gi"},
    },
    "policies": {
        "replicas": 2,
        "podDisruptionBudget": {"enabled": True},
        "headless": {"enabled": True},
        "networkPolicy": {
            "enabled": True,
            "clients": [{"podSelector": {"matchLabels": {"app": "gateway"}}}],
        },
    },
}
"""Values of the chart that come to the same, by overlay."""

KUBECTL = shutil.which("kubectl") or ""


def from_chart(values: Mapping[str, Any]) -> list[Manifest]:
    """The chart's manifests with these values, without what is Helm's own."""
    manifests = render({"fullnameOverride": "penstock", **values})
    return [_plain(each) for each in manifests if "helm.sh/hook" not in str(each["metadata"])]


def _plain(manifest: Manifest) -> Manifest:
    text = yaml.safe_dump(manifest).replace("instance: demo", "instance: penstock")
    plain: Manifest = yaml.safe_load(text)
    template = plain["spec"].get("template", {}).get("metadata", {})
    for metadata in (plain["metadata"], template):
        for label in _HELMS:
            metadata.get("labels", {}).pop(label, None)
    return plain


def written(manifest: Manifest) -> str:
    """The file of a manifest."""
    text: str = yaml.safe_dump(manifest, sort_keys=False, width=100)
    return _HEAD + text


def built(overlay: str) -> list[Manifest]:
    """What kustomize makes of a folder."""
    done = subprocess.run(
        [KUBECTL, "kustomize", FOLDER / overlay], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return [each for each in yaml.safe_load_all(done.stdout) if each]


def main() -> None:
    """Write `base`."""
    for manifest in from_chart({}):
        file = FOLDER / "base" / f"{manifest['kind'].lower()}.yaml"
        file.write_text(written(manifest))


if __name__ == "__main__":
    main()
