"""A proxy that follows a Service's endpoints, and a load through it by stock clients that retry."""

from __future__ import annotations

import json
import operator
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import tritonclient.grpc as grpcclient
import urllib3
import yaml
from tritonclient.utils import InferenceServerException

from deploy.observability.programs import answers, port, program
from deployment.proxies import PROXIES
from harness.repeat_model import REPEAT
from kube.api import Api, Object
from kube.cluster import wait_for
from kube.nodes import address_of
from programs.places import find

MODELS = {
    "copy/config.pbtxt": """
backend: "identity"
max_batch_size: 8
input { name: "NUMBER" data_type: TYPE_INT32 dims: [ 1 ] }
output { name: "NUMBER" data_type: TYPE_INT32 dims: [ 1 ] }
""",
    "copy/1/note.txt": "versions are folders, which need a file here\n",
    "story/config.pbtxt": REPEAT,
    "story/1/note.txt": "see the other one\n",
}
"""A model that answers at once, and one that answers again and again."""

PIECE_MILLISECONDS = 200
PIECES = 25  # of a stream: five seconds
_EDS = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"

# What stock gRPC clients are told in a service config, and urllib3 in a `Retry`.
_RETRIES = {
    "methodConfig": [
        {
            "name": [{"service": "inference.GRPCInferenceService", "method": "ModelInfer"}],
            "retryPolicy": {
                "maxAttempts": 5,
                "initialBackoff": "0.1s",
                "maxBackoff": "2s",
                "backoffMultiplier": 2,
                "retryableStatusCodes": ["UNAVAILABLE"],
            },
        }
    ]
}


# -- the proxy ------------------------------------------------------------------------------------


def endpoints(slices: Iterable[Object]) -> dict[str, list[tuple[str, int]]]:
    """Addresses of ready endpoints on this machine, by the names of their ports."""
    found: dict[str, set[tuple[str, int]]] = {}
    for each in slices:
        ready = [one for one in each.get("endpoints") or () if one["conditions"].get("ready")]
        for named in each.get("ports") or ():
            places = found.setdefault(named["name"], set())
            places |= {
                (address_of(address), named["port"])
                for one in ready
                for address in one["addresses"]
            }
    return {name: sorted(places) for name, places in found.items()}


def assignment(name: str, places: Iterable[tuple[str, int]], version: int) -> Object:
    """What Envoy reads about the endpoints of a cluster."""
    sockets = [{"address": address, "port_value": number} for address, number in places]
    hosts = [{"endpoint": {"address": {"socket_address": each}}} for each in sockets]
    resource = {"@type": _EDS, "cluster_name": name, "endpoints": [{"lb_endpoints": hosts}]}
    return {"version_info": str(version), "resources": [resource]}


def following(written: str, folder: Path, ports: Mapping[int, int]) -> Object:
    """`deploy/proxies/envoy.yaml` on other ports, with servers from files that it watches."""
    found: Object = yaml.safe_load(written)
    found["node"] = {"id": "proxy", "cluster": "proxy"}
    for listener in found["static_resources"]["listeners"]:
        socket = listener["address"]["socket_address"]
        socket |= {"address": "127.0.0.1", "port_value": ports[socket["port_value"]]}
    for cluster in found["static_resources"]["clusters"]:
        name = cluster.pop("load_assignment")["cluster_name"]
        cluster["type"] = "EDS"
        # Else one that is no longer an endpoint gets requests for as long as it answers.
        cluster["ignore_health_on_host_removal"] = True
        source = {"path_config_source": {"path": str(folder / f"{name}.json")}}
        config = {**source, "resource_api_version": "V3"}
        cluster["eds_cluster_config"] = {"service_name": name, "eds_config": config}
    return found


@dataclass(frozen=True, slots=True)
class Proxy:
    """Where it listens."""

    http: str
    grpc: str


class _Endpoints:
    """Files for Envoy, kept as the EndpointSlices of a Service are."""

    def __init__(self, folder: Path, service: str) -> None:
        self._folder, self._service = folder, service
        self._slices: dict[str, Object] = {}
        self._version = 0
        self._write()

    def seen(self, kind: str, found: Object) -> None:
        if found["metadata"]["labels"].get("kubernetes.io/service-name") != self._service:
            return
        name = found["metadata"]["name"]
        if kind == "DELETED":
            self._slices.pop(name, None)
        else:
            self._slices[name] = found
        self._write()

    def _write(self) -> None:
        self._version += 1
        places = endpoints(self._slices.values())
        for name in ("http", "grpc"):
            written = assignment(name, places.get(name, ()), self._version)
            file = self._folder / f"{name}.json"
            new = file.with_suffix(".new")
            new.write_text(json.dumps(written))
            new.rename(file)  # which is what Envoy looks for


@contextmanager
def proxy(api: Api, namespace: str, service: str, folder: Path) -> Iterator[Proxy]:
    """Envoy in front of the ready endpoints of a Service."""
    folder.mkdir(exist_ok=True)
    kept = _Endpoints(folder, service)
    ports = {8000: port("", 0), 8001: port("", 0)}
    file = folder / "envoy.json"
    file.write_text(json.dumps(following((PROXIES / "envoy.yaml").read_text(), folder, ports)))
    stop = threading.Event()
    slices = "discovery.k8s.io/v1/endpointslices"
    watch = threading.Thread(target=api.follow, args=(slices, kept.seen, stop, namespace))
    options = ("--concurrency", "1", "--use-dynamic-base-id", "--log-level", "warning")
    with program("envoy", [find("envoy"), "-c", file, *options], folder) as started:
        watch.start()
        try:
            here = Proxy(*(f"127.0.0.1:{ports[each]}" for each in (8000, 8001)))
            wait_for(
                lambda: started.process.poll() is not None or answers(f"http://{here.http}/v2"),
                60,
                "an answer through the proxy",
            )
            assert started.process.poll() is None, started.last_lines()
            yield here
        finally:
            stop.set()
            watch.join(40)


# -- the load -------------------------------------------------------------------------------------


@dataclass(slots=True)
class Tally:
    """What clients saw."""

    calls: int = 0
    failed: int = 0
    wrong: int = 0
    streams: int = 0
    cut: int = 0
    slowest: float = 0.0
    """Seconds of the slowest call that was answered."""
    errors: list[str] = field(default_factory=list)


class Load:
    """Clients that call without end: over gRPC, over HTTP, and streams. A context.

    Between two calls a client waits for `pause` seconds. Streams are not tried again.
    """

    def __init__(
        self,
        proxy: Proxy,
        *,
        grpc: int = 4,
        http: int = 1,
        streams: int = 3,
        model: str = "copy",
        pause: float = 0.04,
    ) -> None:
        self._proxy, self._model, self._pause = proxy, model, pause
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._tally = Tally()
        callers: list[Callable[[], None]] = [self._call_grpc] * grpc
        callers += [self._call_http] * http
        callers += [partial(self._stream, number) for number in range(streams)]
        self._ended = [0] * streams
        self._threads = [threading.Thread(target=each) for each in callers]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(60)

    def wait_for_streams(self) -> None:
        """Wait until each stream that goes on now has ended."""
        before = [*self._ended]
        wait_for(lambda: all(map(operator.gt, self._ended, before)), 90, "the end of streams")

    def take(self) -> Tally:
        """What was seen since it was last taken."""
        with self._lock:
            taken, self._tally = self._tally, Tally()
        return taken

    def _count(self, began: float, error: str = "", *, right: bool = True) -> None:
        with self._lock:
            self._tally.calls += 1
            self._tally.failed += bool(error)
            self._tally.wrong += not right
            if error:
                self._tally.errors.append(error)
            else:
                self._tally.slowest = max(self._tally.slowest, time.monotonic() - began)

    def _count_stream(self, pieces: int, error: str) -> None:
        with self._lock:
            self._tally.streams += not error
            self._tally.cut += bool(error)
            if error:
                self._tally.errors.append(f"after {pieces} pieces of a stream: {error}")

    def _call_grpc(self) -> None:
        config = ("grpc.service_config", json.dumps(_RETRIES))
        client = grpcclient.InferenceServerClient(self._proxy.grpc, channel_args=[config])
        with _closing(client):
            number = 0
            while not self._stop.wait(self._pause):
                number += 1
                sent = grpcclient.InferInput("NUMBER", [1, 1], "INT32")
                sent.set_data_from_numpy(np.array([[number]], np.int32))
                began = time.monotonic()
                try:
                    answer = client.infer(self._model, [sent], client_timeout=20)
                except InferenceServerException as error:
                    self._count(began, str(error))
                else:
                    said = answer.as_numpy("NUMBER")
                    self._count(began, right=said is not None and said.tolist() == [[number]])

    def _call_http(self) -> None:
        retries = urllib3.Retry(
            total=5, backoff_factor=0.1, status_forcelist=(502, 503, 504), allowed_methods=None
        )
        url = f"http://{self._proxy.http}/v2/models/{self._model}/infer"
        with urllib3.PoolManager(retries=retries) as pool:
            number = 0
            while not self._stop.wait(self._pause):
                number += 1
                tensor = {"name": "NUMBER", "shape": [1, 1], "datatype": "INT32", "data": [number]}
                began = time.monotonic()
                try:
                    answer = pool.request("POST", url, json={"inputs": [tensor]}, timeout=20)
                except urllib3.exceptions.HTTPError as error:
                    self._count(began, str(error))
                else:
                    bad = "" if answer.status == 200 else f"{answer.status} {answer.data[:200]!r}"
                    said = None if bad else answer.json()["outputs"][0]["data"]
                    self._count(began, bad, right=bool(bad) or said == [number])

    def _stream(self, number: int) -> None:
        """One stream after the other, each on a connection of its own."""
        while not self._stop.wait(self._pause):
            seen: queue.Queue[object] = queue.Queue()
            pieces, fault = 0, None
            client = grpcclient.InferenceServerClient(self._proxy.grpc)
            with _closing(client):
                client.start_stream(
                    lambda result, error, seen=seen: seen.put(error)  # by these names
                )
                client.async_stream_infer("story", _story())
                while pieces < PIECES and not fault:
                    try:
                        fault = seen.get(timeout=60)
                    except queue.Empty:
                        fault = "nothing for a minute"
                    pieces += not fault
                client.stop_stream(cancel_requests=bool(fault))
            self._count_stream(pieces, str(fault or ""))
            self._ended[number] += 1


def _story() -> list[grpcclient.InferInput]:
    """The request of a stream."""
    tensors = {
        "IN": np.arange(PIECES, dtype=np.int32),
        "DELAY": np.full(PIECES, PIECE_MILLISECONDS, np.uint32),
        "WAIT": np.zeros(1, np.uint32),
    }
    sent = []
    for name, array in tensors.items():
        kind = "INT32" if array.dtype == np.int32 else "UINT32"
        sent.append(grpcclient.InferInput(name, list(array.shape), kind))
        sent[-1].set_data_from_numpy(array)
    return sent


@contextmanager
def _closing(client: grpcclient.InferenceServerClient) -> Iterator[None]:
    try:
        yield
    finally:
        client.close()
