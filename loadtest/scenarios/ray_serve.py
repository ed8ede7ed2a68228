"""What comes through Ray Serve's proxies: calls, errors, and each property of a stream with
messages both ways. One line each: what is asked, and what was seen. By the Python of `make ray`.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import numpy as np
from ray import serve
from ray.serve.config import HTTPOptions, gRPCOptions

from loadtest.process import free_ports
from loadtest.ray_cluster import cluster, write_models
from loadtest.report import Row, arguments, show
from penstock.protocol import grpc_service_pb2 as pb
from penstock.protocol import releases_pb2 as releases
from penstock.protocol.grpc_service_pb2_grpc import GRPCInferenceServiceStub
from penstock.protocol.releases_pb2_grpc import ReleasesStub
from penstock.ray.serve_application import SERVICERS, application

_HEAD = """
import asyncio
import os
from pathlib import Path

import numpy as np

from penstock.model import DataType, Input, Model, ModelConfig, Output, Response

NOTE = Path("{note}-" + str(os.getpid()))


"""
_FLOOD = """
class Flood(Model):
    # So many responses of 64 KiB, as fast as they are taken; the note has the number of the last.
    config = ModelConfig(
        input=(Input("IN", DataType.INT32, dims=(1,)),),
        output=(Output("OUT", DataType.INT32, dims=(16384,)),),
    )

    async def infer(self, request):
        for number in range(int(request["IN"][0])):
            NOTE.write_text(str(number))
            yield Response({"OUT": np.full(16384, number, np.int32)})
"""
_DRIP = """
class Drip(Model):
    # A response each 50 ms; the note says how many requests are in flight.
    config = ModelConfig(
        input=(Input("IN", DataType.INT32, dims=(1,)),),
        output=(Output("OUT", DataType.INT32, dims=(1,)),),
    )
    in_flight = 0

    def count(self, more):
        self.in_flight += more
        NOTE.write_text(str(self.in_flight))

    async def infer(self, request):
        self.count(1)
        try:
            for number in range(int(request["IN"][0])):
                await asyncio.sleep(0.05)
                yield Response({"OUT": np.array([number], np.int32)})
        finally:
            self.count(-1)
"""
_SLOW = (
    _DRIP.replace("Drip", "Slow")
    .replace("yield Response", "last = Response")
    .replace("            self.count(-1)\n", "            self.count(-1)\n        return last\n")
)
_END: Any = vars(grpc.aio)["EOF"]  # its stubs lack it
_FLOODED = 4000  # responses, 250 MiB


@dataclass(frozen=True, slots=True)
class Site:
    """Where the proxies of Serve are, and the folder where models write their notes."""

    stub: Any
    releases: Any
    http: str
    notes: Path


def main() -> None:
    options = arguments(__doc__, timed=False).parse_args()
    with tempfile.TemporaryDirectory() as temporary, cluster(nodes=1):
        folder = Path(temporary)
        models = write_models(folder / "models")
        for name, code in (("flood", _FLOOD), ("drip", _DRIP), ("slow", _SLOW)):
            (models / name / "1").mkdir(parents=True)
            head = _HEAD.format(note=folder / name)
            (models / name / "1" / "model.py").write_text(head + code)
        loaded = [f"--load-model={n}" for n in ("add_one", "count", "flood", "drip", "slow")]
        control = ["--model-control-mode=explicit", "--log-info=false", *loaded]
        with _served([f"--model-repository={models}", *control]) as (http, port):
            rows = asyncio.run(_rows(http, port, folder))
    show("through the proxies of Ray Serve", rows, options.json)
    if any(row["right"] == "no" for row in rows):
        sys.exit("something was not as expected")


@contextmanager
def _served(served: list[str]) -> Iterator[tuple[str, int]]:
    http, port = free_ports(2)
    serve.start(
        http_options=HTTPOptions(host="127.0.0.1", port=http),
        grpc_options=gRPCOptions(port=port, grpc_servicer_functions=SERVICERS),
    )
    try:
        serve.run(application(served, num_replicas=2), route_prefix="/")
        yield f"http://127.0.0.1:{http}", port
    finally:
        serve.shutdown()


async def _rows(http: str, port: int, notes: Path) -> list[Row]:
    rows: list[Row] = []
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        site = Site(GRPCInferenceServiceStub(channel), ReleasesStub(channel), http, notes)
        for name, check in _CHECKS.items():
            try:
                async with asyncio.timeout(60):
                    right, seen = await check(site)
            except Exception as error:  # of a client, which is what is to be seen
                right, seen = False, f"{type(error).__name__}: {error}"[:200]
            print(f"{name}: {seen}", flush=True)
            rows.append({"what": name, "right": "yes" if right else "no", "seen": seen})
    return rows


def _request(model: str, number: int, name: str = "IN", id: str = "") -> pb.ModelInferRequest:
    request = pb.ModelInferRequest(model_name=model, id=id)
    request.inputs.add(name=name, datatype="INT32", shape=[1])
    request.raw_input_contents.append(np.array([number], np.int32).tobytes())
    return request


def _number(response: Any) -> int:
    answer = getattr(response, "infer_response", response)
    return int(np.frombuffer(answer.raw_output_contents[0], np.int32)[0])


async def _unary(site: Site) -> tuple[bool, str]:
    answers = await asyncio.gather(
        *[site.stub.ModelInfer(_request("add_one", n)) for n in range(32)]
    )
    return [_number(answer) for answer in answers] == list(range(1, 33)), "32 at once"


async def _codes(site: Site) -> tuple[bool, str]:
    try:
        await site.stub.ModelInfer(_request("nothing", 1))
    except grpc.aio.AioRpcError as error:
        seen = f"{error.code().name}: {error.details()}"
        return error.code() is grpc.StatusCode.NOT_FOUND and "nothing" in seen, seen
    return False, "no error"


async def _loaded(site: Site) -> tuple[bool, str]:
    """A load and an alias reach both replicas: every call of them is answered."""
    await site.stub.RepositoryModelLoad(pb.RepositoryModelLoadRequest(model_name="late"))
    alias = releases.AliasSetRequest(name="always")
    alias.definition.targets.add(model="late", weight=100)
    await site.releases.AliasSet(alias)
    ready = [
        (await site.stub.ModelReady(pb.ModelReadyRequest(name=name))).ready
        for name in ("late", "always")
        for _ in range(20)
    ]
    return all(ready), f"{sum(ready)} of {len(ready)} calls find them"


async def _not_loaded(site: Site) -> tuple[bool, str]:
    try:
        await site.stub.RepositoryModelLoad(pb.RepositoryModelLoadRequest(model_name="nothing"))
    except grpc.aio.AioRpcError as error:
        seen = f"{error.code().name}: {error.details()}"
        return "nothing" in seen, seen
    return False, "no error"


async def _refused(site: Site) -> tuple[bool, str]:
    try:
        await site.stub.SystemSharedMemoryRegister(
            pb.SystemSharedMemoryRegisterRequest(name="n", key="/k", byte_size=64)
        )
    except grpc.aio.AioRpcError as error:
        seen = f"{error.code().name}: {error.details()}"
        return error.code() is grpc.StatusCode.UNIMPLEMENTED and "one replica" in seen, seen
    return False, "no error"


async def _many(site: Site) -> tuple[bool, str]:
    """Requests are written before the first answer is read, then the client half-closes."""
    call = site.stub.ModelStreamInfer()
    for number in range(100):
        await call.write(_request("add_one", number))
    await call.done_writing()
    got = [_number(response) async for response in call]
    return got == list(range(1, 101)), f"{len(got)} of 100 in order, then the end"


async def _turns(site: Site) -> tuple[bool, str]:
    """Each request is written once the answer of the one before was read."""
    call = site.stub.ModelStreamInfer()
    began = time.monotonic()
    for number in range(20):
        await call.write(_request("add_one", number))
        if _number(await call.read()) != number + 1:
            return False, f"wrong answer to {number}"
    await call.done_writing()
    ended = await call.read() is _END
    return ended, f"20 in turns, {(time.monotonic() - began) / 20 * 1e3:.1f} ms each, then the end"


async def _failing(site: Site) -> tuple[bool, str]:
    """A request that fails is one answer; the stream goes on."""
    call = site.stub.ModelStreamInfer()
    await call.write(_request("nothing", 1))
    failed = await call.read()
    await call.write(_request("add_one", 1))
    answer = await call.read()
    await call.done_writing()
    right = "nothing" in failed.error_message and _number(answer) == 2
    return right, f"{failed.error_message!r}, and then an answer"


async def _cancelled(site: Site) -> tuple[bool, str]:
    call = site.stub.ModelStreamInfer()
    await call.write(_request("drip", 10_000))
    await call.read()
    call.cancel()
    return await _idle(site, "drip")


async def _cancelled_calls(site: Site) -> tuple[bool, str]:
    calls = [site.stub.ModelInfer(_request("slow", 10_000)) for _ in range(20)]
    for _ in range(200):
        if _noted(site, "slow") == 20:
            break
        await asyncio.sleep(0.05)
    for call in calls:
        call.cancel()
    return await _idle(site, "slow")


async def _deadline(site: Site) -> tuple[bool, str]:
    call = site.stub.ModelStreamInfer(timeout=1.0)
    await call.write(_request("drip", 10_000))
    try:
        while await call.read() is not _END:
            continue
    except grpc.aio.AioRpcError as error:
        right, seen = await _idle(site, "drip")
        return right and error.code() is grpc.StatusCode.DEADLINE_EXCEEDED, seen
    return False, "no error"


async def _slow_reader(site: Site) -> tuple[bool, str]:
    """How many responses the model has made while their client reads none; then all come."""
    call = site.stub.ModelStreamInfer()
    await call.write(_request("flood", _FLOODED))
    await call.done_writing()
    got = [_number(await call.read())]
    await asyncio.sleep(5)
    made = _noted(site, "flood") + 1
    while (response := await call.read()) is not _END:
        got.append(_number(response))
    seen = f"{made} of {_FLOODED} responses were made while none was read, {len(got)} came"
    return got == list(range(_FLOODED)), seen


def _noted(site: Site, model: str) -> int:
    """The sum of what the processes of a model have noted."""
    return sum(int(note.read_text() or "0") for note in site.notes.glob(f"{model}-*"))


async def _idle(site: Site, model: str) -> tuple[bool, str]:
    """Whether a model has no request in flight within ten seconds, and when."""
    began = time.monotonic()
    while time.monotonic() - began < 10:
        if _noted(site, model) == 0:
            return True, f"the model is told within {time.monotonic() - began:.1f} s"
        await asyncio.sleep(0.05)
    return False, f"{_noted(site, model)} in flight after 10 s"


async def _http(site: Site) -> tuple[bool, str]:
    tensor = {"name": "IN", "datatype": "INT32", "shape": [1], "data": [41]}
    body = json.dumps({"inputs": [tensor]}).encode()
    page = await asyncio.to_thread(_fetched, f"{site.http}/v2/models/add_one/infer", body)
    return json.loads(page)["outputs"][0]["data"] == [42], "JSON"


async def _http_refused(site: Site) -> tuple[bool, str]:
    try:
        await asyncio.to_thread(_fetched, f"{site.http}/v2/repository/models/late/load", b"{}")
    except urllib.error.HTTPError as error:
        text = error.read().decode()
        return error.code == 501 and "one replica" in text, f"{error.code}: {text}"
    return False, "no error"


async def _events(site: Site) -> tuple[bool, str]:
    """Server-sent events come while the answer goes on."""
    body = json.dumps({"IN": 10}).encode()
    times = await asyncio.to_thread(
        _event_times, f"{site.http}/v2/models/count/generate_stream", body
    )
    spread = times[-1] - times[0]
    return len(times) == 10 and spread > 0.3, f"{len(times)} events within {spread:.2f} s"


def _fetched(url: str, body: bytes | None = None) -> bytes:
    with urllib.request.urlopen(url, body, timeout=30) as answer:
        page: bytes = answer.read()
    return page


def _event_times(url: str, body: bytes) -> list[float]:
    with urllib.request.urlopen(url, body, timeout=30) as answer:
        return [time.monotonic() for line in answer if line.startswith(b"data:")]


_Check = Callable[[Site], Awaitable[tuple[bool, str]]]
_CHECKS: dict[str, _Check] = {
    "calls": _unary,
    "code and text of an error": _codes,
    "a load and an alias on two replicas": _loaded,
    "a load that fails": _not_loaded,
    "what is of one replica is refused": _refused,
    "many requests on one stream, end": _many,
    "a stream with requests in turns": _turns,
    "a request of a stream that fails": _failing,
    "a stream that is cancelled": _cancelled,
    "calls that are cancelled": _cancelled_calls,
    "a stream's deadline": _deadline,
    "a slow reader": _slow_reader,
    "HTTP": _http,
    "HTTP, a load is refused": _http_refused,
    "HTTP, server-sent events": _events,
}


if __name__ == "__main__":
    main()
