"""Kinds that others add to a cluster: KServe's, the inference gateway's, Prometheus' operator's.

Their definitions come from the Go modules of these projects. Their controllers do not run.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from kube.api import Api, ApiError, Object, condition
from kube.checks import Check
from kube.cluster import new_namespace, wait_for

_DEPLOY = Path(__file__).parents[2] / "deploy"
_DEFINITIONS = "apiextensions.k8s.io/v1/customresourcedefinitions"

MODULES: Mapping[str, Sequence[str]] = {
    "github.com/kserve/kserve@v0.15.2": (
        "config/crd/full/serving.kserve.io_servingruntimes.yaml",
        "config/crd/full/serving.kserve.io_inferenceservices.yaml",
    ),
    "sigs.k8s.io/gateway-api-inference-extension@v1.0.0": (
        "config/crd/bases/inference.networking.k8s.io_inferencepools.yaml",
        "config/crd/bases/inference.networking.x-k8s.io_inferenceobjectives.yaml",
    ),
    "github.com/prometheus-operator/prometheus-operator@v0.85.0": (
        "example/prometheus-operator-crd/monitoring.coreos.com_podmonitors.yaml",
        "example/prometheus-operator-crd/monitoring.coreos.com_servicemonitors.yaml",
    ),
}
"""Files of definitions, by module and version."""

MANIFESTS = (
    "kserve/serving-runtime.yaml",
    "kserve/inference-service.yaml",
    "kubernetes/inference-pool.yaml",
)


def _module(name: str) -> Path | str:
    """The folder of a module, or why it is not to be had."""
    if shutil.which("go") is None:
        return "there is no Go here"
    done = subprocess.run(
        ["go", "mod", "download", "-json", name],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
        env={**os.environ, "GOFLAGS": "-mod=mod"},
        cwd="/",
    )
    found = json.loads(done.stdout or "{}")
    if done.returncode or "Dir" not in found:
        return str(found.get("Error") or done.stderr).strip().splitlines()[-1]
    return Path(found["Dir"])


def define(api: Api) -> Iterator[Check]:
    """Add the kinds that can be had here, and say of each whether the server has it."""
    for module, files in MODULES.items():
        folder = _module(module)
        if isinstance(folder, str):
            yield Check(f"kinds of {module}", f"LEFT OUT: {folder}", right=True)
            continue
        for file in files:
            definition = yaml.safe_load((folder / file).read_text())
            yield _defined(api, module, definition)


def _defined(api: Api, module: str, definition: Object) -> Check:
    name = definition["metadata"]["name"]
    try:
        api.create(definition)
    except ApiError as error:
        return Check(f"{name} of {module}", error.message[:300], right=False)
    wait_for(lambda: _established(api, name), 60, f"the kind {name}")
    versions = ", ".join(each["name"] for each in definition["spec"]["versions"])
    return Check(f"`{name}` of `{module}`", f"established: {versions}", right=True)


def _established(api: Api, name: str) -> bool:
    return condition(api.get(_DEFINITIONS, name), "Established").get("status") == "True"


def manifests(file: str) -> list[Object]:
    """The manifests of a file below `deploy`."""
    return [each for each in yaml.safe_load_all((_DEPLOY / file).read_text()) if each]


def apply_ours(api: Api) -> Iterator[Check]:
    """Apply our manifests of those kinds; and the same with a mistake."""
    namespace = new_namespace(api, "kinds")
    for file in MANIFESTS:
        for manifest in manifests(file):
            about = f"{manifest['kind']} `{manifest['metadata']['name']}` (`deploy/{file}`)"
            yield _applied(api, about, manifest, namespace)
    for about, (manifest, expected) in _mistakes().items():
        said = _refused(api, manifest, namespace)
        yield Check(about, said, all(each in said for each in expected) or said.startswith("LEFT"))
    api.delete("v1/namespaces", namespace)


def _applied(api: Api, about: str, manifest: Object, namespace: str) -> Check:
    try:
        done = api.apply(manifest, namespace)
    except (ApiError, KeyError) as error:
        left_out = isinstance(error, KeyError) or error.status == 404
        said = "LEFT OUT: the kind is not had here" if left_out else str(error)
        return Check(about, said, right=left_out)
    said = "; ".join(["taken", *done.warnings])
    return Check(about, said, right=not done.warnings)


def _refused(api: Api, manifest: Object, namespace: str) -> str:
    try:
        api.apply(manifest, namespace, dry_run=True)
    except KeyError:
        return "LEFT OUT: the kind is not had here"
    except ApiError as error:
        return "LEFT OUT: the kind is not had here" if error.status == 404 else error.message
    return "taken"


def _mistakes() -> dict[str, tuple[Object, Sequence[str]]]:
    """Our manifests with a mistake each, and what has to be said of it."""
    (runtime,) = manifests("kserve/serving-runtime.yaml")
    service = manifests("kserve/inference-service.yaml")[0]
    pool = manifests("kubernetes/inference-pool.yaml")[0]
    misspelt = _changed(service, "spec", "predictor", storageURI="s3://bucket")
    nameless = _changed(runtime, "spec", containers=[{"image": "penstock"}])
    portless = _changed(pool, "spec", targetPorts=[])
    return {
        "an InferenceService with `storageURI`": (misspelt, ("storageURI",)),
        "a ServingRuntime with a container that has no name": (nameless, ("name",)),
        "an InferencePool without a port": (portless, ("targetPorts",)),
    }


def _changed(manifest: Object, *path: str, **fields: Any) -> Object:
    """A copy of a manifest with other fields at a path."""
    copy: Object = json.loads(json.dumps(manifest))
    place = copy
    for key in path:
        place = place[key]
    place |= fields
    return copy
