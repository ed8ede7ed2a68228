"""Aliases under load: traffic that moves loses no call, and a shadow costs its callers nothing.

    python -m loadtest.scenarios.releases --calls 100000 --rounds 5 --in-flight 8

`moves`: so many calls of an alias over gRPC while it is set to other shares, promoted in steps,
rolled back, and while a target is unloaded, loaded and loaded again; ends where one of them failed.
`shadow`: the same calls without a shadow, with one that gets `--percent` of them, and without it
`again`, in turns of `--seconds` each; shown are the medians of the 50th and 99th percentiles, of
the processor time that the front takes for a call, and ratios to those without: that of `again` is
what tells nothing. The models are in Python, in a process each. No `--calls`, or no `--rounds`,
leaves one of both out.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np

from loadtest.load import Load, Outcome, run
from loadtest.process import Server, penstock
from loadtest.report import Row, arguments, show
from penstock.protocol import grpc_service_pb2 as pb
from penstock_client.client import Client, ClientError

_CONFIG = """
backend: "python"
max_batch_size: 8
dynamic_batching { }
input [ { name: "X" data_type: TYPE_FP32 dims: [ 16 ] } ]
output [ { name: "Y" data_type: TYPE_FP32 dims: [ 16 ] } ]
"""
_MODEL = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        found = [pb_utils.get_input_tensor_by_name(one, "X").as_numpy() for one in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", x * 2)]) for x in found]
"""
_OLD = {"targets": [{"model": "old"}, {"model": "new", "weight": 0}]}


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--calls", type=int, default=100_000)
    parser.add_argument("--in-flight", type=int, default=8)
    parser.add_argument("--percent", type=float, default=10.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        _write(folder / "models")
        request = folder / "request"
        request.write_bytes(_message())
        flags = "--model-control-mode=explicit", "--load-model=*"
        with penstock(folder / "models", *flags) as server:
            load = Load(server.target, str(request), options.in_flight)
            if options.calls:
                show("calls while traffic moves", [_moves(server, load, options.calls)], None)
            if options.rounds:
                rows = [_shadow(server, load, options)]
                show("calls with and without a shadow", rows, options.json)


def _write(models: Path) -> None:
    for name in ("old", "new"):
        (models / name / "1").mkdir(parents=True)
        (models / name / "config.pbtxt").write_text(_CONFIG)
        (models / name / "1" / "model.py").write_text(_MODEL)


def _message() -> bytes:
    tensor = pb.ModelInferRequest.InferInputTensor(name="X", datatype="FP32", shape=[1, 16])
    numbers = np.arange(16, dtype=np.float32).tobytes()
    request = pb.ModelInferRequest(
        model_name="alias", inputs=[tensor], raw_input_contents=[numbers]
    )
    message: bytes = request.SerializeToString()
    return message


# -- moves ----------------------------------------------------------------------------------------


def _moves(server: Server, load: Load, calls: int) -> Row:
    asyncio.run(_set(server, _OLD))
    stopping, made = Event(), dict[str, int]()
    rounds = calls // load.in_flight + 1
    with ThreadPoolExecutor(1) as pool:
        moving = pool.submit(lambda: asyncio.run(_move(server, stopping, made)))
        try:
            outcome = run(Load(load.target, load.message_file, load.in_flight, rounds=rounds))
        finally:
            stopping.set()
        moving.result()
    return {"calls": outcome.calls, "failed": 0, **made, "p99 ms": outcome.latency_p99}


async def _move(server: Server, stopping: Event, made: dict[str, int]) -> None:
    """Change the alias and its targets, again and again."""
    async with Client(server.target) as client:
        for name in cycle(("shares", "promoted", "rolled back", "unloaded", "reloaded")):
            if stopping.is_set():
                return
            await _change(client, name)
            made[name] = made.get(name, 0) + 1
            await asyncio.sleep(0.05)


async def _change(client: Client, name: str) -> None:
    targets = [{"model": "old", "weight": 60}, {"model": "new", "weight": 40}]
    if name == "shares":
        await client.set_alias("alias", {"targets": targets, "guard": {"max_error_rate": 0.0}})
    elif name == "promoted":
        await client.promote_alias("alias", target="new", steps=[70, 90], every=1)
    elif name == "rolled back":
        await client.roll_back_alias("alias")
    elif name == "unloaded":
        await client.set_alias("alias", {"targets": targets})
        await client.unload("new")
        await _gone(client)
        await client.load("new")
    else:
        await client.load("new")
        await client.load("old")


async def _gone(client: Client) -> None:
    end = time.monotonic() + 20
    while await client.ready("new"):
        if time.monotonic() > end:
            raise ClientError("'new' was not unloaded")
        await asyncio.sleep(0.01)


# -- shadow ---------------------------------------------------------------------------------------


def _shadow(server: Server, load: Load, options: Any) -> Row:
    asked = Load(load.target, load.message_file, load.in_flight, options.seconds)
    shadowed = {**_OLD, "shadow": {"model": "new", "percent": options.percent}}
    sides = ["off", "on", "again"]
    outcomes: dict[str, list[Outcome]] = {side: [] for side in sides}
    costs: dict[str, list[float]] = {side: [] for side in sides}
    counts: dict[str, int] = {}
    for _ in range(options.rounds):
        sides.append(sides.pop(0))
        for side in sides:
            asyncio.run(_set(server, shadowed if side == "on" else _OLD))
            used = server.own_cpu_seconds()
            outcomes[side].append(run(asked))
            costs[side].append((server.own_cpu_seconds() - used) / outcomes[side][-1].all_calls)
            if side == "on":
                found = asyncio.run(_shown(server))
                for one in ("equal", "different", "failed", "dropped"):
                    counts[one] = counts.get(one, 0) + found.get(one, 0)
    p50 = {side: statistics.median(o.latency_p50 for o in many) for side, many in outcomes.items()}
    p99 = {side: statistics.median(o.latency_p99 for o in many) for side, many in outcomes.items()}
    cost = {side: 1e6 * statistics.median(many) for side, many in costs.items()}
    row: dict[str, float | str] = {"in flight": load.in_flight, "percent": options.percent}
    for name, by_side in (("p50", p50), ("p99", p99), ("front us", cost)):
        row[f"{name} off"] = by_side["off"]
        row |= {f"{name} {side}": by_side[side] / by_side["off"] for side in ("on", "again")}
    row.update(counts)
    return row


async def _set(server: Server, definition: dict[str, Any]) -> None:
    async with Client(server.target) as client:
        await client.set_alias("alias", definition)


async def _shown(server: Server) -> dict[str, int]:
    async with Client(server.target) as client:
        found: dict[str, int] = (await client.alias("alias")).get("shadowed", {})
        return found


if __name__ == "__main__":
    main()
