"""A Kubernetes control plane on this machine: etcd, API server, controllers and scheduler.

The programs are built once and kept below `~/.cache/penstock/kubernetes`. There is no kubelet and
no network of pods: `kube.nodes` stands for both.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import ssl
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from deploy.observability.programs import StackError, Started, port, program
from kube.api import Api, ApiError
from programs.install import CONTROL_PLANE

_MODULE = Path(__file__).parents[1] / "programs" / "kubernetes" / "go.mod"
VERSION: str = re.findall(r"k8s.io/kubernetes v(\S+)", _MODULE.read_text())[0]
"""That of Kubernetes."""

_READY_SECONDS = 120.0

TIMES: Mapping[str, str] = {
    # A node counts as dead after so long; 50 s are usual.
    "node-monitor-grace-period": "8s",
    "node-monitor-period": "1s",
    "horizontal-pod-autoscaler-sync-period": "2s",
}
"""What is quicker here than in a cluster, so that a run takes minutes."""


def kept() -> Path:
    """The folder of the programs."""
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return caches / "penstock" / "kubernetes" / VERSION


def refresh() -> Iterator[str]:
    """Build what is not there yet, which takes many minutes; a line for each program."""
    folder = kept()
    folder.mkdir(parents=True, exist_ok=True)
    for each in CONTROL_PLANE:
        yield each.refresh(folder)


def missing() -> str:
    """Why there can be no cluster; empty if there can."""
    absent = [each.name for each in CONTROL_PLANE if not (kept() / each.name).exists()]
    return f"there is no {', '.join(absent)}: `make kube` builds them" if absent else ""


@dataclass(frozen=True, slots=True)
class Cluster:
    """A control plane that is ready; `api` is its administrator's."""

    api: Api
    kubeconfig: Path
    ready_seconds: float


@contextmanager
def cluster(folder: Path) -> Iterator[Cluster]:
    """A control plane whose data and logs are in the folder."""
    began = time.monotonic()
    certificates = folder / "certificates"
    certificates.mkdir()
    key, tokens, token = _write_keys(folder)
    url = f"https://127.0.0.1:{port('', 0)}"
    with ExitStack() as stack:

        def start(name: str, *options: str) -> Started:
            return stack.enter_context(program(name, [kept() / name, *options], folder))

        etcd = _etcd_options(folder)
        start("etcd", *etcd)
        server = start(
            "kube-apiserver",
            *_api_server_options(url, etcd[1].partition("=")[2], certificates, key, tokens),
        )
        api = _connect(server, url, token, certificates / "apiserver.crt")
        stack.callback(api.close)
        kubeconfig = write_kubeconfig(folder / "kubeconfig", url, api.token, certificates)
        common = (f"--kubeconfig={kubeconfig}", "--leader-elect=false", "--secure-port=0")
        quick = ("--kube-api-qps=200", "--kube-api-burst=400")
        times = [f"--{name}={value}" for name, value in TIMES.items()]
        start(
            "kube-controller-manager",
            *common,
            *quick,
            *times,
            f"--service-account-private-key-file={key}",
            f"--root-ca-file={certificates / 'apiserver.crt'}",
        )
        start("kube-scheduler", *common, *quick)
        _wait_for_account(api)
        yield Cluster(api, kubeconfig, time.monotonic() - began)


def _write_keys(folder: Path) -> tuple[Path, Path, str]:
    """The key of service accounts, the file of tokens, and the administrator's token."""
    key = folder / "service-accounts.key"
    made = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    key.write_bytes(
        made.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
    )
    key.chmod(0o600)
    token, tokens = secrets.token_hex(16), folder / "tokens.csv"
    others = "".join(f"{name},{name},{name}\n" for name in USERS)
    tokens.write_text(f'{token},admin,admin,"system:masters"\n{others}')
    tokens.chmod(0o600)
    return key, tokens, token


USERS = ("deployer", "viewer")
"""Users without rights of their own, whose names are their tokens."""


def _etcd_options(folder: Path) -> Sequence[str]:
    client, peer = (f"http://127.0.0.1:{port('', 0)}" for _ in range(2))
    return (
        f"--data-dir={folder / 'etcd'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        "--unsafe-no-fsync",  # nothing is kept
    )


def _api_server_options(
    url: str, etcd: str, certificates: Path, key: Path, tokens: Path
) -> Sequence[str]:
    return (
        f"--etcd-servers={etcd}",
        f"--cert-dir={certificates}",
        f"--secure-port={url.rpartition(':')[2]}",
        "--bind-address=127.0.0.1",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={key}",
        f"--service-account-signing-key-file={key}",
        f"--token-auth-file={tokens}",
        "--authorization-mode=RBAC",
        "--service-cluster-ip-range=10.0.0.0/24",
        "--profiling=false",
    )


def _connect(server: Started, url: str, token: str, certificate: Path) -> Api:
    """The administrator's API, once the server says that it is ready."""
    end = time.monotonic() + _READY_SECONDS
    while time.monotonic() < end:
        if server.process.poll() is not None:
            raise StackError(f"{server.name} ended:\n{server.last_lines()}")
        if certificate.exists() and certificate.stat().st_size:
            api = Api(url, token, ssl.create_default_context(cafile=certificate))
            try:
                api.call("GET", "/readyz")
            except (ApiError, httpx.HTTPError, ssl.SSLError):
                api.close()
            else:
                return api
        time.sleep(0.1)
    raise StackError(f"{server.name} is not ready:\n{server.last_lines()}")


def write_kubeconfig(file: Path, url: str, token: str, certificates: Path) -> Path:
    """Write what clients of Kubernetes read; JSON is YAML."""
    known = {"server": url, "certificate-authority": str(certificates / "apiserver.crt")}
    context = {"cluster": "here", "user": "admin"}
    file.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "here", "cluster": known}],
                "users": [{"name": "admin", "user": {"token": token}}],
                "contexts": [{"name": "here", "context": context}],
                "current-context": "here",
            }
        )
    )
    file.chmod(0o600)
    return file


def _wait_for_account(api: Api) -> None:
    """Wait for the first service account: without one, no pod is admitted."""
    end = time.monotonic() + _READY_SECONDS
    while time.monotonic() < end:
        try:
            api.get("v1/serviceaccounts", "default", "default")
        except ApiError:
            time.sleep(0.1)
        else:
            return
    raise StackError("the controllers made no service account")


def new_namespace(api: Api, name: str, level: str = "restricted") -> str:
    """A namespace of a Pod Security level, whose service account is there; returns its name."""
    labels = {"pod-security.kubernetes.io/enforce": level}
    api.create(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
    )
    wait_for(lambda: exists(api, "v1/serviceaccounts", "default", name))
    return name


def exists(api: Api, resource: str, name: str, namespace: str = "") -> bool:
    """Whether there is such an object."""
    try:
        api.get(resource, name, namespace)
    except ApiError as error:
        if error.status == 404:
            return False
        raise
    return True


def wait_for(condition: Callable[[], object], seconds: float = 60.0, what: str = "") -> None:
    """Wait until what is called is true; raises StackError when it does not become so."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise StackError(f"in {seconds:.0f} s it did not come: {what or condition}")
        time.sleep(0.05)
