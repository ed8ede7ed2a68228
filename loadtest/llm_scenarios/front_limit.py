"""How many tokens a second the front bears: a backend without an engine sends recorded ones.

    python -m loadtest.llm_scenarios.front_limit [--wire chat] [--engines 2] [--streams 64 256 1024]

`flat out`: a response for every token, made as fast as readers take them. Else there is a token for
every stream in each step of so many milliseconds; with `by 4` those that come within 4 ms share a
response, as do those that come while a reader is busy. Wires are gRPC, SSE of `generate_stream`,
and OpenAI's streamed completions and chats, which the process that plays the engine writes: there
tokens that come while a reader is busy always share an event.
CPU is microseconds a token of the front, of the processes that play the engine, and of the client.
`share` is the part of a core that the front used: less than 1 means that something else, on this
machine, was full before it, and `full at` is what the front alone on a core would bear.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import grpc

from loadtest.llm_repository import INTERVAL
from loadtest.llm_requests import OPENAI, grpc_request, sse_body
from loadtest.llm_subjects import WIRES
from loadtest.process import Server, penstock
from loadtest.recorded_backend import MARK, recorded_text
from loadtest.recorded_models import Pace, installed, write_models
from loadtest.report import Row, arguments, median_rows, show
from loadtest.stream_load import StreamLoad, run
from penstock.models.config.own_parameters import READERS
from penstock.protocol import grpc_service_pb2 as pb

_METHOD = "/inference.GRPCInferenceService/ModelStreamInfer"
_ROOT = Path(__file__).resolve().parents[2]
_PROMPT = "What do you know?"
_ENDLESS = 10**9
_CHECKED = 500


def paces() -> Iterator[Pace]:
    """Those that this server knows, in the order of the table."""
    yield Pace("flat out", 0, merge=False)
    yield Pace("5 ms", 5, merge=True)
    if INTERVAL in READERS:
        yield Pace("0.3 ms, each", 0.3, merge=True, interval="0")
        yield Pace("0.3 ms, by 4", 0.3, merge=True, interval="4")
    else:
        yield Pace("0.3 ms", 0.3, merge=True)


def main() -> None:
    options = _options().parse_args()
    cases = [
        (pace, wire, streams)
        for pace in paces()
        if not options.pace or pace.name in options.pace
        for wire in options.wire
        for streams in options.streams
    ]
    with tempfile.TemporaryDirectory() as temporary:
        directory = Path(temporary)
        for pace in paces():
            write_models(directory / "models", pace, options.engines)
        site = installed(directory / "site")
        server_arguments = [f"--grpc-transport={options.transport}"]
        with penstock(
            directory / "models", *server_arguments, python=options.python, paths=[site, _ROOT]
        ) as server:
            for pace in paces():
                _check(server, pace)

            def measure() -> list[Row]:
                return [_row(directory, server, options, *case) for case in cases]

            rows = median_rows(options.rounds, measure)
    show("tokens through one front", rows, options.json)


def _options() -> argparse.ArgumentParser:
    parser = arguments(__doc__)
    parser.set_defaults(seconds=2.0)
    parser.add_argument("--streams", type=int, nargs="+", default=[64, 256, 1024])
    parser.add_argument("--wire", nargs="+", choices=WIRES, default=["grpc", "sse", "chat"])
    parser.add_argument("--pace", nargs="+", choices=[pace.name for pace in paces()])
    parser.add_argument("--engines", type=int, default=1, help="processes that make tokens")
    parser.add_argument("--connections", type=int, default=4, help="of gRPC")
    parser.add_argument("--transport", choices=("native", "grpcio"), default="native")
    parser.add_argument(
        "--python",
        default=sys.executable,
        help="the server's interpreter, such as that of a compiled one",
    )
    return parser


def _message(pace: Pace, engine: int, tokens: int) -> pb.ModelInferRequest:
    sampling = {"max_tokens": tokens}
    return grpc_request(pace.model(engine), _PROMPT, sampling, coalesce=pace.merge)


def _check(server: Server, pace: Pace) -> None:
    """Stop the run unless a stock client gets the whole text."""
    with grpc.insecure_channel(server.target) as channel:
        method = channel.stream_stream(
            _METHOD,
            request_serializer=pb.ModelInferRequest.SerializeToString,
            response_deserializer=pb.ModelStreamInferResponse.FromString,
        )
        answers = list(method(iter([_message(pace, 0, _CHECKED)])))
    raw = [answer.infer_response.raw_output_contents[0] for answer in answers]
    text = b"".join(contents[4:] for contents in raw).decode()
    if text != recorded_text(_CHECKED):
        raise SystemExit(f"wrong text from {pace.model(0)}: {text}")


def _row(
    directory: Path,
    server: Server,
    options: argparse.Namespace,
    pace: Pace,
    wire: str,
    streams: int,
) -> Row:
    models = [pace.model(engine) for engine in range(options.engines)]
    generate = [f"/v2/models/{model}/generate_stream" for model in models]
    load = StreamLoad(
        server.target if wire == "grpc" else f"127.0.0.1:{server.http_port}",
        "grpc" if wire == "grpc" else "sse",
        _request_files(directory, pace, wire, options.engines),
        streams,
        seconds=options.seconds,
        paths=[OPENAI[wire].path] if wire in OPENAI else generate,
        connections=options.connections,
        watched=server.processes(),
        mark=MARK,
    )
    found = run(load)
    rate = found.marks / found.seconds
    share = found.cpu["front"] / found.seconds
    cpu = {f"{name} us": used / found.marks * 1e6 for name, used in found.cpu.items()}
    return {
        "pace": pace.name,
        "wire": wire,
        "streams": str(streams),
        "tokens/s": rate,
        "a response": found.marks / max(found.messages, 1),
        **cpu,
        "front us a response": found.cpu["front"] / max(found.messages, 1) * 1e6,
        "share": share,
        "full at": rate / share,
        "gap p50 ms": found.gap_p50,
        "gap p99 ms": found.gap_p99,
    }


def _request_files(directory: Path, pace: Pace, wire: str, engines: int) -> Sequence[str]:
    contents = [_request(pace, engine, wire) for engine in range(engines)]
    files = []
    for number, content in enumerate(contents):
        path = directory / f"{pace.model(number)}-{wire}.bin"
        path.write_bytes(content)
        files.append(str(path))
    return files


def _request(pace: Pace, engine: int, wire: str) -> bytes:
    sampling = {"max_tokens": _ENDLESS}
    if wire == "grpc":
        serialized: bytes = _message(pace, engine, _ENDLESS).SerializeToString()
        return serialized
    if wire == "sse":
        return sse_body(_PROMPT, sampling, coalesce=pace.merge)
    return OPENAI[wire].body(pace.model(engine), _PROMPT, sampling)


if __name__ == "__main__":
    main()
