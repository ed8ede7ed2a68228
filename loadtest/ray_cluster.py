"""Ray on this machine for scenarios: nodes that are processes, a fleet behind Envoy, and a load."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from loadtest.process import family, free_ports
from penstock_client.client import CallPolicy, Client, ClientError

_ROOT = Path(__file__).parents[1]
_ENVOY = _ROOT / ".tools" / "envoy"
_POLICY = CallPolicy(attempts=12, longest_backoff=1.0, after_loss=True)

_RAY = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",  # 15 otherwise, which on a busy machine is much of what is measured
    "PYTHONDONTWRITEBYTECODE": "",  # each process would compile anew what it imports
    # On a busy machine processes take long to start, and now and then to answer.
    "RAY_worker_register_timeout_seconds": "300",
    "RAY_health_check_timeout_ms": "60000",
}


def node(number: int) -> dict[str, Any]:
    """Options of a node: an address of the loopback, and a small store, as nothing lies in it."""
    address = f"127.0.0.{10 + number}"  # of 127.0.0.1 Ray makes that of the machine
    return {"num_cpus": 4, "object_store_memory": 80 << 20, "node_ip_address": address}


# A model of Triton's, whose requests wait in the server's queue, one execution after the other.
_ADD_ONE = """
import time

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        time.sleep(0.01)
        return [self.answer(request) for request in requests]

    def answer(self, request):
        number = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUT", number + 1)])
"""
_ADD_ONE_CONFIG = """
backend: "python"
input [{ name: "IN" data_type: TYPE_INT32 dims: [1] }]
output [{ name: "OUT" data_type: TYPE_INT32 dims: [1] }]
"""
_COUNT = """
import asyncio

import numpy as np

from penstock.model import DataType, Input, Model, ModelConfig, Output, Response


class Count(Model):
    config = ModelConfig(
        input=(Input("IN", DataType.INT32, dims=(1,)),),
        output=(Output("OUT", DataType.INT32, dims=(1,)),),
    )

    async def infer(self, request):
        for number in range(int(request["IN"][0])):
            await asyncio.sleep(0.05)
            yield Response({"OUT": np.array([number], np.int32)})
"""
_IDENTITY = """
backend: "identity"
input [{ name: "INPUT0" data_type: TYPE_FP32 dims: [-1] }]
output [{ name: "OUTPUT0" data_type: TYPE_FP32 dims: [-1] }]
"""


def write_models(folder: Path) -> Path:
    """`add_one`, 10 ms a call; `count`, a response each 50 ms; `identity`; and `late`, as that."""
    for name, code in (("add_one", _ADD_ONE), ("count", _COUNT)):
        (folder / name / "1").mkdir(parents=True)
        (folder / name / "1" / "model.py").write_text(code)
    (folder / "add_one" / "config.pbtxt").write_text(_ADD_ONE_CONFIG)
    for name in ("identity", "late"):
        (folder / name / "1").mkdir(parents=True)
        (folder / name / "config.pbtxt").write_text(_IDENTITY)
    return folder


@contextmanager
def cluster(nodes: int = 3) -> Iterator[Any]:
    """A cluster of so many nodes, with this process as its driver; the first one is the head."""
    os.environ.update(_RAY)
    import ray
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={**node(1), "include_dashboard": False})
    try:
        for number in range(2, nodes + 1):
            made.add_node(**node(number))
        ray.init(address=made.address, log_to_driver=False, logging_level="ERROR")
        yield made
    finally:
        ray.shutdown()
        made.shutdown()


def kill_node(node_id: str) -> None:
    """Kill every process of a node at once, as when its machine loses power.

    On a cluster of one machine these are the raylet of this node and all below it.
    """
    (raylet,) = [
        int(entry.name)
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit() and _is_raylet(entry, node_id)
    ]
    below = list(family(raylet))
    for pid in below:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue  # with its parent


def _is_raylet(entry: Path, node_id: str) -> bool:
    try:
        command = (entry / "cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return False
    return "/raylet" in command.split("\0")[0] and node_id in command


@contextmanager
def envoy(folder: Path) -> Iterator[tuple[int, int]]:
    """Envoy over the endpoint files in a folder, with `deploy/proxies/envoy-ray.yaml`; its ports
    of HTTP and gRPC.
    """
    http, grpc = free_ports(2)
    text = (_ROOT / "deploy" / "proxies" / "envoy-ray.yaml").read_text()
    text = text.replace("/etc/envoy/penstock", str(folder))
    for wanted, port in ((8000, http), (8001, grpc)):
        text = text.replace(
            f"address: 0.0.0.0, port_value: {wanted}", f"address: 127.0.0.1, port_value: {port}"
        )
    file = folder / "envoy.yaml"
    file.write_text(text)
    command = [str(_ENVOY), "-c", str(file), "--concurrency", "1", "--use-dynamic-base-id"]
    with (folder / "envoy.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "--log-level", "warning"], stdout=log, stderr=subprocess.STDOUT
        )
    try:
        yield http, grpc
        if process.poll() is not None:
            raise SystemExit(f"Envoy ended:\n{(folder / 'envoy.log').read_text()}")
    finally:
        process.terminate()
        process.wait(20)


@dataclass(slots=True)
class Tally:
    """Calls so far: right answers, wrong ones, and those that failed after all retries."""

    right: int = 0
    wrong: int = 0
    lost: int = 0
    longest: float = 0.0
    errors: Counter[str] = field(default_factory=Counter)

    def took(self, seconds: float) -> None:
        self.right += 1
        self.longest = max(self.longest, seconds)

    def failed(self, error: BaseException) -> None:
        self.lost += 1
        self.errors[re.sub(r"[0-9.:]+", "#", f"{type(error).__name__}: {error}")[:160]] += 1


class Traffic:
    """Closed loops of calls of `add_one` and of streams of `count`, on a thread of its own.

    A stock client that tries again; of a stream it does so only before its first response, so that
    what breaks in the middle is lost, unless `resume` has the whole request made anew.
    """

    def __init__(self, target: str, loops: int, streams: int = 0, resume: bool = False) -> None:
        self.calls = Tally()
        self.streams = Tally()
        self._target = target
        self._wanted = (loops, streams)
        self._resume = resume
        self._over = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))

    def __enter__(self) -> Traffic:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    async def _run(self) -> None:
        loops, streams = self._wanted
        async with Client(self._target, timeout=60, policy=_POLICY) as client:
            await asyncio.gather(
                *[self._call(client, number) for number in range(loops)],
                *[self._stream(client) for _ in range(streams)],
            )

    async def _call(self, client: Client, number: int) -> None:
        while not self._over.is_set():
            number = (number + 1000) % 1_000_000
            began = time.monotonic()
            try:
                sent = np.array([[number]], np.int32)
                result = await client.infer("add_one", {"IN": sent[0]})
            except ClientError as error:
                self.calls.failed(error)
                continue
            if result["OUT"].tolist() == [number + 1]:
                self.calls.took(time.monotonic() - began)
            else:
                self.calls.wrong += 1

    async def _stream(self, client: Client) -> None:
        while not self._over.is_set():
            began = time.monotonic()
            try:
                got = await self._counted(client)
            except ClientError as error:
                self.streams.failed(error)
                continue
            if got == list(range(20)):
                self.streams.took(time.monotonic() - began)
            else:
                self.streams.wrong += 1

    async def _counted(self, client: Client) -> list[int]:
        while True:
            try:
                responses = client.stream("count", {"IN": np.array([20], np.int32)})
                return [int(response["OUT"][0]) async for response in responses]
            except ClientError:
                if not self._resume:
                    raise
