"""What a remote model costs: the same models here and behind a second Penstock, in one run.

The CPU time is that of the server that clients ask; what the far one uses for the same calls is
its own. Both run on this machine, so that a call takes no network. Beside them stands the floor of
a second hop: a relay in front of the far server, which passes bytes on unread. It reads and
writes twice for a call and its answer, where a server that has the model reads and writes once: so
half of its time is the least that a hop takes more.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from loadtest.load import Load
from loadtest.process import Server, bare_relay, penstock
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
            with penstock(near) as server, bare_relay(far) as relay:

                def measure() -> list[Row]:
                    return [
                        *(
                            _calls(directory, server, relay, floats, in_flight, options.seconds)
                            for floats in _FLOATS
                            for in_flight in (1, 8, 32)
                        ),
                        *(_tokens(directory, server, relay, streams) for streams in (1, 8, 64)),
                    ]

                rows = median_rows(options.rounds, measure)
    show("a remote model against the same one here", rows, options.json)


def _write(repository: Path, repeat: str) -> None:
    write_repository(repository)
    _add(repository, "repeat", repeat)


def _add(repository: Path, name: str, config: str) -> None:
    (repository / name / "1").mkdir(parents=True)
    (repository / name / "config.pbtxt").write_text(config)


def _calls(
    directory: Path, server: Server, relay: Server, floats: int, in_flight: int, seconds: float
) -> Row:
    def load(asked: Server, model: str) -> Load:
        message = write_message(directory, model, floats)
        return Load(asked.target, message, in_flight, seconds)

    here, cpu_here = measured(server, load(server, "identity"))
    relayed, cpu_relay = measured(relay, load(relay, "identity"))
    there, cpu = measured(server, load(server, "remote_identity"))
    return {
        "what": f"call of {4 * floats} B",
        "in flight": str(in_flight),
        "a second": there.calls_per_second,
        "here": here.calls_per_second,
        "cpu us": cpu,
        "here us": cpu_here,
        "more us": cpu - cpu_here,
        "relay more us": cpu_relay / 2,
        "p50 ms": there.latency_p50,
        "here p50 ms": here.latency_p50,
        "relay p50 ms": relayed.latency_p50,
    }


def _tokens(directory: Path, server: Server, relay: Server, streams: int) -> Row:
    plan = Plan(streams=streams, rounds=max(320 // streams, 4))
    message = Path(plan.write(directory))
    named = directory / "remote_repeat.bin"
    named.write_bytes(_renamed(message))

    def load(asked: Server, file: Path) -> Load:
        return Load(asked.target, str(file), streams, stream=True, rounds=plan.rounds)

    here, cpu_here = measured(server, load(server, message))
    relayed, cpu_relay = measured(relay, load(relay, message))
    there, cpu = measured(server, load(server, named))
    count = plan.responses
    return {
        "what": "response of a stream",
        "in flight": str(streams),
        "a second": there.calls_per_second * count,
        "here": here.calls_per_second * count,
        "cpu us": cpu / count,
        "here us": cpu_here / count,
        "more us": (cpu - cpu_here) / count,
        "relay more us": cpu_relay / 2 / count,
        "p50 ms": there.first_p50,
        "here p50 ms": here.first_p50,
        "relay p50 ms": relayed.first_p50,
    }


def _renamed(file: Path) -> bytes:
    """The request for the remote's model in place of this server's own."""
    message = pb.ModelInferRequest.FromString(file.read_bytes())
    message.model_name = "remote_repeat"
    return bytes(message.SerializeToString())


if __name__ == "__main__":
    main()
