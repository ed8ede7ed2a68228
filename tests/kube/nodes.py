"""Nodes of a cluster: what a kubelet tells the API server, and a real process for each pod.

A pod whose address is 10.244.0.7 listens on 127.244.0.7 here, on the ports that its arguments name.
Its volumes are folders, its preStop hook is run, its probes are asked, and at its deletion it gets
SIGTERM and its grace period. What a container engine would add is missing: its image, its limits,
its user. Pods of namespaces that nobody asked to start are called ready without a process.
"""

from __future__ import annotations

import base64
import itertools
import os
import re
import signal
import ssl
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx

from kube.api import STRATEGIC, Api, ApiError, Object, condition
from kube.cluster import wait_for

_LEASES = "coordination.k8s.io/v1/leases"
_BEAT_SECONDS = 1.0
_ANY = ssl.create_default_context()
_ANY.check_hostname, _ANY.verify_mode = False, ssl.CERT_NONE  # as the kubelet's probes


# -- what a pod becomes here ----------------------------------------------------------------------


def address_of(pod_address: str) -> str:
    """Where a pod with an address of 10.0.0.0/8 listens."""
    return f"127.{pod_address.partition('.')[2]}"


def localized(
    arguments: Iterable[str], mounts: Mapping[str, Path], address: str, services: Mapping[str, str]
) -> list[str]:
    """Arguments of a container: with folders for its mounts, addresses for names of Services.

    `--http-address` and others are the pod's, whichever of its interfaces they were.
    """
    found = [_localized(each, mounts, services) for each in arguments]
    kept = [each for each in found if not re.match(r"--(http|grpc|metrics)-address=", each)]
    if len(kept) == len(found) and not any("-port=" in each for each in found):
        return found  # no server
    return [*kept, *(f"--{port}-address={address}" for port in ("http", "grpc", "metrics"))]


def _localized(text: str, mounts: Mapping[str, Path], services: Mapping[str, str]) -> str:
    for mount in sorted(mounts, key=len, reverse=True):
        text = re.sub(rf"(^|=|:){re.escape(mount)}(?=/|$)", rf"\g<1>{mounts[mount]}", text)
    for name, address in services.items():
        text = text.replace(name, address)
    return text


def lay_out(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write files by their paths as the kubelet does: behind links, changed all at once."""
    for path, content in files.items():
        file = folder / "..first" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    (folder / "..data").symlink_to("..first")
    for top in {path.partition("/")[0] for path in files}:
        (folder / top).symlink_to(f"..data/{top}")


def projected(keys: Mapping[str, bytes], items: Sequence[Mapping[str, Any]]) -> dict[str, bytes]:
    """Files of a ConfigMap or Secret: all keys, or those that `items` name, by their paths."""
    if not items:
        return dict(keys)
    return {item["path"]: keys[item["key"]] for item in items}


def _now(fraction: bool = False) -> str:
    form = "%Y-%m-%dT%H:%M:%S.%fZ" if fraction else "%Y-%m-%dT%H:%M:%SZ"
    return datetime.now(UTC).strftime(form)


# -- nodes ----------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Node:
    name: str
    beating: bool = True


class Nodes:
    """Nodes, and the pods on them; a context. Threads of its own watch and beat."""

    def __init__(self, api: Api, folder: Path) -> None:
        self._api, self._folder = api, folder
        self._nodes: dict[str, _Node] = {}
        self._pods: dict[str, _Pod] = {}
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._numbers = itertools.count(1)
        self.started: set[str] = set()
        """Namespaces whose pods get processes."""
        self.services: dict[str, str] = {}
        """Addresses for names of Services, such as `demo-penstock:8000`."""
        self.threads = [
            threading.Thread(target=self._beat, name="beat"),
            threading.Thread(
                target=api.follow, args=("v1/pods", self._seen, self._stop), name="pods"
            ),
        ]

    def __enter__(self) -> Nodes:
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        for thread in self.threads:
            thread.join(40)
        for pod in self._pods.values():
            pod.kill()
        for pod in self._pods.values():
            pod.thread.join(20)

    def add(self, name: str, zone: str = "a", **resources: str) -> None:
        """Add a node with so much of each resource, beside CPUs, memory and room for pods."""
        allocatable = {"cpu": "64", "memory": "512Gi", "pods": "110", **resources}
        labels = {
            "kubernetes.io/hostname": name,
            "kubernetes.io/os": "linux",
            "topology.kubernetes.io/zone": zone,
        }
        status = {
            "capacity": allocatable,
            "allocatable": allocatable,
            "conditions": [_condition("Ready", True)],
            "nodeInfo": {"kubeletVersion": "v1.34.4", "operatingSystem": "linux"},
        }
        node = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": labels},
        }
        self._api.create(node)
        self._api.patch("v1/nodes", name, {"status": status}, part="status")
        self._api.create(
            {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": name, "namespace": "kube-node-lease"},
                "spec": {"holderIdentity": name, "renewTime": _now(fraction=True)},
            }
        )
        self._nodes[name] = _Node(name)
        wait_for(
            lambda: not self._api.get("v1/nodes", name)["spec"].get("taints"), 30, "a node in use"
        )

    def kill(self, name: str) -> None:
        """A node dies: its processes at once, and nobody hears of it any more."""
        self._nodes[name].beating = False
        with self._lock:
            dead = [pod for pod in self._pods.values() if pod.node is self._nodes[name]]
        for pod in dead:
            pod.kill()

    def processes(self) -> int:
        """Processes of pods that run."""
        with self._lock:
            return sum(pod.running for pod in self._pods.values())

    def _beat(self) -> None:
        while not self._stop.wait(_BEAT_SECONDS):
            for node in [each for each in [*self._nodes.values()] if each.beating]:
                renewed = {"spec": {"renewTime": _now(fraction=True)}}
                try:
                    self._api.patch(_LEASES, node.name, renewed, "kube-node-lease")
                except (ApiError, httpx.HTTPError) as error:
                    print(f"    node {node.name}: {error}", file=sys.stderr)

    def _seen(self, kind: str, found: Object) -> None:
        node = self._nodes.get(found["spec"].get("nodeName", ""))
        if node is None or not node.beating:
            return
        identity = found["metadata"]["uid"]
        with self._lock:
            pod = self._pods.get(identity)
            if pod is None and kind != "DELETED":
                pod = self._pods[identity] = self._new(node, found)
                pod.thread.start()
        if pod is None:
            return
        if kind == "DELETED":
            pod.kill()
        elif found["metadata"].get("deletionTimestamp"):
            pod.end(found["metadata"].get("deletionGracePeriodSeconds", 0))

    def _new(self, node: _Node, found: Object) -> _Pod:
        number = next(self._numbers)
        address = f"10.244.{number // 250}.{number % 250 + 1}"
        name = found["metadata"]["name"]
        real = found["metadata"]["namespace"] in self.started
        return _Pod(self._api, node, found, address, self._folder / name, real, self.services)


def _condition(kind: str, true: bool) -> Object:
    return {
        "type": kind,
        "status": "True" if true else "False",
        "reason": "AsToldHere",
        "lastTransitionTime": _now(),
        "lastHeartbeatTime": _now(),
    }


# -- a pod ----------------------------------------------------------------------------------------


@dataclass(eq=False)
class _Pod:
    """A pod from its start to its end, in a thread of its own."""

    api: Api
    node: _Node
    found: Object
    address: str
    folder: Path
    real: bool
    services: Mapping[str, str]
    process: subprocess.Popen[bytes] | None = None
    _ending: threading.Event = field(default_factory=threading.Event)
    _killed: threading.Event = field(default_factory=threading.Event)
    _grace: float = 0.0
    _restarts: int = 0
    _ready: bool = False

    def __post_init__(self) -> None:
        self.name = self.found["metadata"]["name"]
        self.namespace = self.found["metadata"]["namespace"]
        self._container: Object = self.found["spec"]["containers"][0]
        self.thread = threading.Thread(target=self._live, name=self.name)

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def end(self, grace: float) -> None:
        """It is being deleted, and has so many seconds."""
        self._grace = grace
        self._ending.set()

    def kill(self) -> None:
        """It is gone; also when its node is."""
        self._killed.set()
        self._ending.set()
        if self.process is not None and self.running:
            os.killpg(self.process.pid, signal.SIGKILL)

    def _live(self) -> None:
        try:
            if self.real:
                self._start()
                self._tell(ready=False)
                self._watch()
            else:
                self._tell(ready=True)
                self._ending.wait()
            if not self._killed.is_set():
                self._end()
        except (ApiError, httpx.HTTPError, OSError, KeyError, ValueError) as error:
            if not self._killed.is_set():
                print(f"    pod {self.name}: {error!r}", file=sys.stderr)

    # -- its process

    def _start(self) -> None:
        mounts = self._mounts()
        variables = self._variables()
        command = [*self._container["command"], *self._container.get("args", ())]
        program, *arguments = localized(command, mounts, address_of(self.address), self.services)
        beside = Path(sys.executable).with_name(program)
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [beside if beside.exists() else program, *arguments],
                env={
                    "PATH": f"{beside.parent}:{os.environ['PATH']}",
                    "HOME": str(mounts.get("/home/penstock", self.folder)),
                    "TMPDIR": str(mounts.get("/tmp", self.folder)),
                    **variables,
                },
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _mounts(self) -> dict[str, Path]:
        """Folders of the host, by where they are mounted."""
        folders = {}
        for volume in self.found["spec"].get("volumes", ()):
            folder = folders[volume["name"]] = self.folder / volume["name"]
            if not folder.exists():
                folder.mkdir(parents=True)
                if "emptyDir" not in volume:
                    lay_out(folder, self._files(volume))
        return {
            each["mountPath"]: folders[each["name"]]
            for each in self._container.get("volumeMounts", ())
        }

    def _files(self, volume: Object) -> dict[str, bytes]:
        if "configMap" in volume:
            source = volume["configMap"]
            texts = self.api.get("v1/configmaps", source["name"], self.namespace)["data"]
            return projected({k: v.encode() for k, v in texts.items()}, source.get("items", ()))
        if "secret" in volume:
            source = volume["secret"]
            return projected(self._secret(source["secretName"]), source.get("items", ()))
        raise ValueError(f"a volume {volume['name']} is not had here: {[*volume]}")

    def _secret(self, name: str) -> dict[str, bytes]:
        data = self.api.get("v1/secrets", name, self.namespace)["data"]
        return {key: base64.b64decode(value) for key, value in data.items()}

    def _variables(self) -> dict[str, str]:
        found = {}
        for each in self._container.get("env", ()):
            if secret := each.get("valueFrom", {}).get("secretKeyRef"):
                found[each["name"]] = self._secret(secret["name"])[secret["key"]].decode()
            else:
                found[each["name"]] = each["value"]
        return {name: _localized(value, {}, self.services) for name, value in found.items()}

    # -- while it runs

    def _watch(self) -> None:
        """Ask its probe and tell what changes, until it is to end."""
        probe = self._container.get("readinessProbe", {})
        failed = 0
        while not self._ending.wait(probe.get("periodSeconds", 1)):
            if not self.running:
                if self.found["spec"].get("restartPolicy") != "Always":
                    self._finished()
                    self._ending.wait()
                    return
                self._restarts += 1
                self._tell(ready=False)
                self._start()
            answers = self.running and _answers(self._url(probe), probe)
            failed = 0 if answers else failed + 1
            if answers and not self._ready:
                self._tell(ready=True)
            elif self._ready and failed >= probe.get("failureThreshold", 3):
                self._tell(ready=False)

    def _url(self, probe: Object) -> str:
        asked = probe.get("httpGet")
        if asked is None:
            return ""
        ports = {each["name"]: each["containerPort"] for each in self._container["ports"]}
        port = ports.get(asked["port"], asked["port"])
        scheme = asked.get("scheme", "HTTP").lower()
        return f"{scheme}://{address_of(self.address)}:{port}{asked['path']}"

    def _finished(self) -> None:
        assert self.process is not None
        code = self.process.returncode
        self._patch(
            {
                "phase": "Failed" if code else "Succeeded",
                "conditions": [_condition(kind, False) for kind in ("Ready", "ContainersReady")],
                "containerStatuses": [
                    self._status(False, {"terminated": {"exitCode": code, "finishedAt": _now()}})
                ],
            }
        )

    def _tell(self, *, ready: bool) -> None:
        self._ready = ready
        running = {"running": {"startedAt": _now()}}
        others = [each["name"] for each in self.found["spec"]["containers"][1:]]
        self._patch(
            {
                "phase": "Running",
                "hostIP": "10.0.0.1",
                "hostIPs": [{"ip": "10.0.0.1"}],
                "podIP": self.address,
                "podIPs": [{"ip": self.address}],
                "startTime": _now(),
                "conditions": [
                    _condition("Initialized", True),
                    _condition("ContainersReady", ready),
                    _condition("Ready", ready),
                ],
                "containerStatuses": [
                    self._status(ready, running),
                    *({**self._status(ready, running), "name": name} for name in others),
                ],
            }
        )

    def _status(self, ready: bool, state: Object) -> Object:
        return {
            "name": self._container["name"],
            "image": self._container["image"],
            "imageID": "",
            "ready": ready,
            "started": ready,
            "restartCount": self._restarts,
            "state": state,
        }

    def _patch(self, status: Object) -> None:
        if self._killed.is_set():
            return
        for each in status["conditions"]:
            each.pop("lastHeartbeatTime", None)  # of nodes only
        self.api.patch(
            "v1/pods",
            self.name,
            {"status": status},
            self.namespace,
            part="status",
            kind=STRATEGIC,
        )

    # -- its end

    def _end(self) -> None:
        """As the kubelet does it: the hook, SIGTERM, and SIGKILL when the grace period is over."""
        until = time.monotonic() + self._grace
        if self.process is not None and self.running:
            hook = self._container.get("lifecycle", {}).get("preStop", {}).get("exec")
            if hook:
                subprocess.run(hook["command"], check=False, timeout=max(self._grace, 1))
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(max(until - time.monotonic(), 0.1))
            except subprocess.TimeoutExpired:
                print(f"    pod {self.name}: its grace period was too short", file=sys.stderr)
                os.killpg(self.process.pid, signal.SIGKILL)
        if not self._killed.is_set():
            self.api.delete("v1/pods", self.name, self.namespace, gracePeriodSeconds=0)


def _answers(url: str, probe: Object) -> bool:
    """Whether a probe is content; one without a URL asks for the process alone."""
    if not url:
        return True
    headers = {each["name"]: each["value"] for each in probe["httpGet"].get("httpHeaders", ())}
    asked = urllib.request.Request(url, headers=headers)
    context = _ANY if url.startswith("https") else None
    timeout = probe.get("timeoutSeconds", 1)
    try:
        with urllib.request.urlopen(asked, timeout=timeout, context=context) as answer:
            return bool(answer.status < 400)
    except (urllib.error.URLError, OSError):
        return False


# -- what tests ask about pods --------------------------------------------------------------------


def ready(pods: Iterable[Object]) -> list[Object]:
    """Those that are ready and not being deleted."""
    return [
        pod
        for pod in pods
        if condition(pod, "Ready").get("status") == "True"
        and not pod["metadata"].get("deletionTimestamp")
    ]
