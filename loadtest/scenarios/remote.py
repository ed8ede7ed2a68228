"""What a remote model costs: the same models here and behind a second Penstock, in one run.

The CPU time is that of the server that clients ask; what the far one uses for the same calls is its
own. Both run on this machine, so that a call's time has no network in it. Beside them our transport
alone is measured, with requests decoded and answers encoded: a remote call passes one such way more
than one here, as a client.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from loadtest.load import Load
from loadtest.process import Server, bare_native, penstock
from loadtest.report import Row, arguments, median_rows, show
from loadtest.scenarios.streams import REPEAT, Plan
from loadtest.scenarios.unary import measured, write_message, write_repository
from penstock.protocol import grpc_service_pb2 as pb

_ENTRY = """
backend: "remote"
parameters {{ key: "address" value {{ string_value: "grpc://{target}" }} }}
parameters {{ key: "remote_model" value {{ string_value: "{model}" }} }}
"""
_FLOATS = (16, 262_144)
"""64 bytes, and a mebibyte."""


def main() -> None:
    options = arguments(__doc__).parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        directory = Path(temporary)
        _write(directory / "far", repeat=REPEAT)
        with penstock(directory / "far") as far:
            near = directory / "near"
            _write(near, repeat=REPEAT)
            for model in ("identity", "repeat"):
                _add(near, f"remote_{model}", _ENTRY.format(target=far.target, model=model))
            with penstock(near) as server, bare_native("messages") as bare:

                def measure() -> list[Row]:
                    return [
                        *(
                            _calls(directory, server, floats, in_flight, options.seconds)
                            for floats in _FLOATS
                            for in_flight in (1, 8, 32)
                        ),
                        *(_tokens(directory, server, streams) for streams in (1, 8, 64)),
                    ]

                rows = median_rows(options.rounds, measure)
                floor = median_rows(
                    options.rounds,
                    lambda: [
                        _floor(directory, bare, count, options.seconds) for count in (1, 8, 32)
                    ],
                )
    show("our transport alone, a call of 64 B", floor, None)
    show("a remote model against the same one here", rows, options.json)


def _write(repository: Path, repeat: str) -> None:
    write_repository(repository)
    _add(repository, "repeat", repeat)


def _add(repository: Path, name: str, config: str) -> None:
    (repository / name / "1").mkdir(parents=True)
    (repository / name / "config.pbtxt").write_text(config)


def _calls(directory: Path, server: Server, floats: int, in_flight: int, seconds: float) -> Row:
    def load(model: str) -> Load:
        message = write_message(directory, model, floats)
        return Load(server.target, message, in_flight, seconds)

    here, cpu_here = measured(server, load("identity"))
    there, cpu = measured(server, load("remote_identity"))
    return {
        "what": f"call of {4 * floats} B",
        "in flight": str(in_flight),
        "a second": there.calls_per_second,
        "here": here.calls_per_second,
        "cpu us": cpu,
        "here us": cpu_here,
        "more us": cpu - cpu_here,
        "p50 ms": there.latency_p50,
        "here p50 ms": here.latency_p50,
    }


def _floor(directory: Path, server: Server, in_flight: int, seconds: float) -> Row:
    message = write_message(directory, "identity", _FLOATS[0])
    outcome, cpu = measured(server, Load(server.target, message, in_flight, seconds))
    return {
        "in flight": str(in_flight),
        "a second": outcome.calls_per_second,
        "cpu us": cpu,
        "p50 ms": outcome.latency_p50,
    }


def _tokens(directory: Path, server: Server, streams: int) -> Row:
    plan = Plan(streams=streams, rounds=max(320 // streams, 4))
    message = Path(plan.write(directory))
    named = directory / "remote_repeat.bin"
    named.write_bytes(_renamed(message))

    def load(file: Path) -> Load:
        return Load(server.target, str(file), streams, stream=True, rounds=plan.rounds)

    here, cpu_here = measured(server, load(message))
    there, cpu = measured(server, load(named))
    count = plan.responses
    return {
        "what": "response of a stream",
        "in flight": str(streams),
        "a second": there.calls_per_second * count,
        "here": here.calls_per_second * count,
        "cpu us": cpu / count,
        "here us": cpu_here / count,
        "more us": (cpu - cpu_here) / count,
        "p50 ms": there.first_p50,
        "here p50 ms": here.first_p50,
    }


def _renamed(file: Path) -> bytes:
    """The request for the remote's model in place of this server's own."""
    message = pb.ModelInferRequest.FromString(file.read_bytes())
    message.model_name = "remote_repeat"
    return bytes(message.SerializeToString())


if __name__ == "__main__":
    main()
