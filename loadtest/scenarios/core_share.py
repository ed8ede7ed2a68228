"""How much of a call, a token and an event is the core's, and how much the front's.

    PYTHONPATH=$(python deploy/compiled_build.py find) python -m loadtest.scenarios.core_share

If several front processes had one core process behind them, the core would be what is left of each
call in it. `front` is what such a process could take over: sockets, HTTP, gRPC, messages. `core` is
what must be in one place: admission, scheduling, models, statistics. `link` is the way to and from
model processes; `loop` the event loop and what is not compiled. Microseconds are CPU of the first
process of the server, measured without a profiler, and shared out as one saw it in the same run.
`model` is the CPU of the model's process: for a small call, what it costs to get work through a
link, since the model itself does nothing. `wire` and `messages` are our own transport without a
core (`loadtest.bare_native`).
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import penstock
from loadtest.llm_requests import grpc_request, sse_body
from loadtest.load import Load
from loadtest.load import run as run_calls
from loadtest.process import Server, bare_native, cpu_seconds, family
from loadtest.process import penstock as serving
from loadtest.recorded_backend import MARK
from loadtest.recorded_models import Pace, installed, write_models
from loadtest.report import Row, arguments, median_rows, show
from loadtest.room_profile import NOWHERE, Rooms, compiled_modules, missing, profiled
from loadtest.scenarios.unary import write_message, write_repository
from loadtest.stream_load import StreamLoad
from loadtest.stream_load import run as run_streams

_ROOT = Path(__file__).resolve().parents[2]
_SITE = Path(penstock.__path__[0]).parent
_FLAT = Pace("flat out", 0, merge=False)
_PACED = Pace("5 ms", 5, merge=True)
_PROMPT = "What do you know?"
_ENDLESS = 10**9

_PARTS: Mapping[str, tuple[str, ...]] = {
    "front": (
        "penstock.access",
        "penstock.gateway",
        "penstock.header_forward",
        "penstock.http1",
        "penstock.http2",
        "penstock.rpc",
        "penstock.system",
    ),
    "link": ("penstock.hosting", "penstock.shared_memory"),
    "loop": (NOWHERE,),
}
"""Part -> its rooms; all others are the core's."""


@dataclass(frozen=True, slots=True)
class Used:
    """Units of a load (calls, tokens), its seconds, and CPU seconds by process."""

    units: float
    seconds: float
    front: float
    model: float = 0.0


@dataclass(frozen=True, slots=True)
class Case:
    """A load that can be put on the server again and again."""

    name: str
    run: Callable[[], Used]


def main() -> None:
    options = _options().parse_args()
    if reason := missing():
        sys.exit(reason)
    modules = compiled_modules(_SITE)
    if not modules:
        sys.exit(f"{_SITE} is not compiled: put the folder of a compiled build into PYTHONPATH")
    with tempfile.TemporaryDirectory() as temporary, ExitStack() as stack:
        directory = Path(temporary)
        write_repository(directory / "models")
        for pace in (_FLAT, _PACED):
            write_models(directory / "models", pace)
        site = installed(directory / "site")
        paths = [_SITE, site, _ROOT]
        server = stack.enter_context(serving(directory / "models", paths=paths))
        floors = {depth: stack.enter_context(bare_native(depth)) for depth in ("wire", "messages")}
        cases = _cases(directory, server, options)
        rows = median_rows(
            options.rounds, lambda: [_row(case, server, Rooms(modules)) for case in cases]
        )
        floor = median_rows(
            options.rounds,
            lambda: [_floor(directory, name, one, options) for name, one in floors.items()],
        )
    show("CPU microseconds of the first process, by part", rows, options.json)
    show("our transport without a core", floor, None)


def _options() -> argparse.ArgumentParser:
    parser = arguments(__doc__)
    parser.add_argument("--in-flight", type=int, default=32)
    parser.add_argument("--streams", type=int, default=256)
    parser.add_argument("--connections", type=int, default=4, help="of gRPC")
    return parser


def _cases(directory: Path, server: Server, options: argparse.Namespace) -> list[Case]:
    def calls(model: str) -> Callable[[], Used]:
        message = write_message(directory, model, 16)
        load = Load(server.target, message, options.in_flight, options.seconds)
        return lambda: _called(server, load)

    def streams(pace: Pace, wire: str) -> Callable[[], Used]:
        file = directory / f"{pace.model(0)}-{wire}.bin"
        sampling = {"max_tokens": _ENDLESS}
        if wire == "grpc":
            message = grpc_request(pace.model(0), _PROMPT, sampling, coalesce=pace.merge)
            file.write_bytes(message.SerializeToString())
        else:
            file.write_bytes(sse_body(_PROMPT, sampling, coalesce=pace.merge))
        load = StreamLoad(
            server.target if wire == "grpc" else f"127.0.0.1:{server.http_port}",
            wire,
            [str(file)],
            options.streams,
            seconds=options.seconds,
            paths=[f"/v2/models/{pace.model(0)}/generate_stream"],
            connections=options.connections,
            watched=server.processes(),
            mark=MARK,
        )
        return lambda: _streamed(load)

    return [
        Case("call, model on a thread", calls("identity")),
        Case("call, model in a process", calls("identity_process")),
        Case("token over gRPC, flat out", streams(_FLAT, "grpc")),
        Case("token over gRPC, each 5 ms", streams(_PACED, "grpc")),
        Case("event over SSE, flat out", streams(_FLAT, "sse")),
        Case("event over SSE, each 5 ms", streams(_PACED, "sse")),
    ]


def _called(server: Server, load: Load) -> Used:
    front, *others = family(server.pid)
    before = cpu_seconds(front), sum(map(cpu_seconds, others))
    outcome = run_calls(load)
    after = cpu_seconds(front), sum(map(cpu_seconds, others))
    return Used(
        outcome.all_calls,
        outcome.seconds * outcome.all_calls / max(outcome.calls, 1),
        after[0] - before[0],
        after[1] - before[1],
    )


def _streamed(load: StreamLoad) -> Used:
    found = run_streams(load)
    return Used(found.marks, found.seconds, found.cpu["front"], found.cpu["engine"])


def _row(case: Case, server: Server, rooms: Rooms) -> Row:
    used = case.run()
    stacks: list[list[str]] = []
    with profiled(server.pid, stacks):
        case.run()
    shares = rooms.tally(stacks)
    parts = {name: _share(shares, beginnings) for name, beginnings in _PARTS.items()}
    parts["core"] = 1 - sum(parts.values())
    whole = used.front / used.units * 1e6
    return {
        "case": case.name,
        "units/s": used.units / used.seconds,
        "us": whole,
        **{f"{name} us": share * whole for name, share in parts.items()},
        "core %": parts["core"] * 100,
        "model us": used.model / used.units * 1e6,
        "full at/s": used.units / used.front,
        "samples": len(stacks),
    }


def _share(shares: Mapping[str, float], beginnings: tuple[str, ...]) -> float:
    return sum(share for module, share in shares.items() if module.startswith(beginnings))


def _floor(directory: Path, name: str, server: Server, options: argparse.Namespace) -> Row:
    message = write_message(directory, "identity", 16)
    used = _called(server, Load(server.target, message, options.in_flight, options.seconds))
    return {
        "floor": name,
        "calls/s": used.units / used.seconds,
        "us": used.front / used.units * 1e6,
    }


if __name__ == "__main__":
    main()
