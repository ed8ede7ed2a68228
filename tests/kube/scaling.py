"""Autoscaling on queue time: a metrics API for the autoscaler, fed by the metrics of real servers.

It answers as prometheus-adapter does with the rules of `deploy/helm/prometheus-adapter.yaml`: the
mean microseconds that requests of a window waited, by pod. The API server finds it by an APIService
whose Service is a name for this machine.
"""

from __future__ import annotations

import json
import re
import ssl
import threading
import time
import urllib.request
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import httpx
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from kube.api import Api, ApiError, Object, condition
from kube.cluster import wait_for
from kube.nodes import address_of, ready
from kube.releases import SELECTOR

METRIC = "avg_time_queue_us"
VERSION = "custom.metrics.k8s.io/v1beta2"
WINDOW = 10.0
"""Seconds; the rules for Prometheus have a minute."""

_SERIES = re.compile(r"^(nv_inference_\w+)(?:\{[^}]*\})? (\S+)", re.MULTILINE)
_ASKED = re.compile(r"/namespaces/([\w-]+)/pods/(\*|[\w.-]+)/(\w+)$")


@dataclass(frozen=True, slots=True)
class Sample:
    """What a server had counted at a time: requests, and the microseconds that they waited."""

    time: float
    waited: float
    requests: float


def sample(page: str, now: float) -> Sample:
    """The sums over all models of a metrics page."""
    sums: dict[str, float] = {}
    for name, value in _SERIES.findall(page):
        sums[name] = sums.get(name, 0.0) + float(value)
    return Sample(
        now,
        sums.get("nv_inference_queue_duration_us", 0.0),
        sums.get("nv_inference_request_success", 0.0),
    )


def mean_wait(samples: Sequence[Sample]) -> float:
    """Mean microseconds between the first and the last sample; 0 without requests."""
    if not samples:
        return 0.0
    requests = samples[-1].requests - samples[0].requests
    return (samples[-1].waited - samples[0].waited) / requests if requests > 0 else 0.0


def answer(path: str, means: Mapping[tuple[str, str], float]) -> Object | None:
    """The answer of the metrics API to a path; `None` if there is none.

    `means` are by namespace and pod.
    """
    place = urlsplit(path)
    if place.path == f"/apis/{VERSION}":
        resource = {
            "name": f"pods/{METRIC}",
            "singularName": "",
            "namespaced": True,
            "kind": "MetricValueList",
            "verbs": ["get"],
        }
        return {
            "kind": "APIResourceList",
            "apiVersion": "v1",
            "groupVersion": VERSION,
            "resources": [resource],
        }
    asked = _ASKED.search(unquote(place.path))
    if asked is None or asked[3] != METRIC:
        return None
    namespace, name = asked[1], asked[2]
    items = [
        _value(namespace, pod, mean)
        for (space, pod), mean in sorted(means.items())
        if space == namespace and name in ("*", pod)
    ]
    return {"kind": "MetricValueList", "apiVersion": VERSION, "metadata": {}, "items": items}


def _value(namespace: str, pod: str, mean: float) -> Object:
    described = {"kind": "Pod", "namespace": namespace, "name": pod, "apiVersion": "/v1"}
    return {
        "describedObject": described,
        "metric": {"name": METRIC},
        "timestamp": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "windowSeconds": int(WINDOW),
        "value": f"{mean * 1000:.0f}m",
    }


@dataclass(slots=True)
class Metrics:
    """Means of the pods of a namespace, read from their metrics each second."""

    api: Api
    namespace: str
    _samples: dict[str, deque[Sample]] = field(default_factory=dict)
    _stop: threading.Event = field(default_factory=threading.Event)

    def means(self) -> dict[tuple[str, str], float]:
        """By namespace and pod."""
        kept = [*self._samples.items()]
        return {(self.namespace, pod): mean_wait([*samples]) for pod, samples in kept}

    def run(self) -> None:
        """Read until stopped; for a thread of its own."""
        while not self._stop.wait(1.0):
            try:
                found = ready(self.api.list("v1/pods", self.namespace, SELECTOR))
            except (ApiError, httpx.HTTPError):
                continue
            pods = {pod["metadata"]["name"]: pod["status"]["podIP"] for pod in found}
            self._samples = {pod: self._read(pod, address) for pod, address in pods.items()}

    def _read(self, pod: str, address: str) -> deque[Sample]:
        samples = self._samples.get(pod, deque())
        url = f"http://{address_of(address)}:8002/metrics"
        try:
            with urllib.request.urlopen(url, timeout=5) as page:
                samples.append(sample(page.read().decode(), time.monotonic()))
        except OSError:
            return samples  # it is about to end
        while samples[-1].time - samples[0].time > WINDOW:
            samples.popleft()
        return samples

    def stop(self) -> None:
        """End `run`."""
        self._stop.set()


@contextmanager
def metrics_api(api: Api, namespace: str, folder: Path) -> Iterator[Metrics]:
    """The metrics of the pods of a namespace, where the autoscaler asks for them."""
    metrics = Metrics(api, namespace)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = answer(self.path, metrics.means())
            body = json.dumps(found or _not_found(self.path)).encode()
            self.send_response(200 if found else 404)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: Any) -> None:
            """Say nothing of each request."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(_write_certificate(folder))
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threads = [threading.Thread(target=each) for each in (server.serve_forever, metrics.run)]
    for thread in threads:
        thread.start()
    try:
        _register(api, server.server_port)
        yield metrics
    finally:
        api.delete("apiregistration.k8s.io/v1/apiservices", _NAME)
        metrics.stop()
        server.shutdown()
        for thread in threads:
            thread.join(20)
        server.server_close()


_NAME = f"{VERSION.rpartition('/')[2]}.{VERSION.partition('/')[0]}"


def _not_found(path: str) -> Object:
    message = f"there is no {path}"
    return {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message}


def _register(api: Api, number: int) -> None:
    """Have the API server pass the group on to a port of this machine."""
    service = {"name": "metrics", "namespace": "kube-system"}
    api.create(
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": service,
            "spec": {"type": "ExternalName", "externalName": "localhost"},
        }
    )
    group, version = VERSION.split("/")
    api.create(
        {
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {"name": _NAME},
            "spec": {
                "group": group,
                "version": version,
                "service": {**service, "port": number},
                "insecureSkipTLSVerify": True,
                "groupPriorityMinimum": 100,
                "versionPriority": 100,
            },
        }
    )
    services = "apiregistration.k8s.io/v1/apiservices"
    wait_for(
        lambda: condition(api.get(services, _NAME), "Available").get("status") == "True",
        60,
        "the metrics API",
    )


def _write_certificate(folder: Path) -> Path:
    """A key and a certificate of its own for `localhost`, in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    file = folder / "metrics-api.pem"
    file.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        + certificate.public_bytes(serialization.Encoding.PEM)
    )
    file.chmod(0o600)
    return file
