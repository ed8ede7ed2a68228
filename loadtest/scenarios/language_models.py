"""What the server adds to generation: an engine alone, the server around it, and `vllm serve`.

    python -m loadtest.scenarios.language_models [--models 0.3ms 5ms 20ms] [--streams 1 8 32]
    python -m loadtest.scenarios.language_models --engine vllm --python .venv-vllm/bin/python

Of each model, named for how long a step of one stream takes on two cores, there are: the engine in
a process of its own, with all cores and with one thread; the server over gRPC and SSE (and, with
`--wire completions`, over OpenAI's API), with each `penstock.stream_interval_ms`; and for vLLM
`vllm serve` with the same arguments. They run in turns and in one run, so that `ratio`, tokens a
second against the engine with all cores, holds on a machine that others use too. `+first` is what
the first token takes longer than there. That floor has all requests of a round in the same step,
and nobody to tell. So a second one is the engine behind a pipe: requests come from another process,
one after another, and their texts go back there, which is the least that a server in another
process has to do. `of pipe` and `+pipe` are against it. CPU is microseconds a token: of the front,
of the process that it started, of that one's own processes, and of the client. `--servers
compiled=PYTHON` adds the server of another environment.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from loadtest.engine_process import EngineProcess, engine_process
from loadtest.engines import PROMPT
from loadtest.llm_repository import known_intervals, model_name, serve_arguments, write_llm
from loadtest.llm_requests import completion_body, grpc_request, sse_body
from loadtest.process import Server, penstock, vllm_serve
from loadtest.random_llms import MODELS, RandomLlm
from loadtest.report import Row, arguments, median_rows, show
from loadtest.stream_load import StreamLoad, run

_WIRES = ("grpc", "sse", "completions")
_FEWEST, _MOST = 32, 128  # tokens of a request
_PROCESSES = ("front", "engine", "core", "client")
_PIPED = "engine, by a pipe"


@dataclass(frozen=True, slots=True)
class Work:
    """On each of `streams` so many requests follow each other, each for so many tokens."""

    streams: int
    rounds: int
    tokens: int

    @property
    def all_tokens(self) -> int:
        """The number of tokens in all."""
        return self.streams * self.rounds * self.tokens

    @property
    def sampling(self) -> Mapping[str, object]:
        """As every server takes it."""
        return {"max_tokens": self.tokens, "temperature": 0, "ignore_eos": True}


Measure = Callable[[Work], dict[str, float]]


@dataclass(frozen=True, slots=True)
class Subject:
    """A measured subject: an engine, or a server, with its measurement."""

    name: str
    measure: Measure


def main() -> None:
    options = _options().parse_args()
    rows: list[Row] = []
    for llm in (model for model in MODELS if model.name in options.models):
        with tempfile.TemporaryDirectory() as temporary, ExitStack() as stack:
            subjects = list(_subjects(Path(temporary), stack, llm, options))
            rows += _rows(llm, subjects, options)
    title = f"random models on {options.engine}: engine, server"
    show(title, rows, options.json)


def _options() -> argparse.ArgumentParser:
    parser = arguments(__doc__)
    parser.set_defaults(seconds=1.0)
    parser.add_argument("--engine", choices=("openvino_genai", "vllm"), default="openvino_genai")
    names = [model.name for model in MODELS]
    parser.add_argument("--models", nargs="+", choices=names, default=names)
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--wire", nargs="+", choices=_WIRES, default=["grpc", "sse"])
    parser.add_argument("--intervals", nargs="+", default=["0", "4"], help="in ms")
    parser.add_argument("--python", default=sys.executable, help="the engine's interpreter")
    parser.add_argument(
        "--servers",
        nargs="+",
        default=[f"pure={sys.executable}"],
        help="NAME=PYTHON of each server's environment",
    )
    return parser


def _subjects(
    directory: Path, stack: ExitStack, llm: RandomLlm, options: argparse.Namespace
) -> Iterator[Subject]:
    """All that are measured, started; the first is the floor."""
    intervals = known_intervals(options.intervals)
    repository = directory / "models"
    versions = [write_llm(repository, llm, options.engine, interval) for interval in intervals]
    alone = stack.enter_context(engine_process(options.python, options.engine, versions[0]))
    yield Subject("engine, all cores", _alone(alone))
    if options.engine == "vllm":
        serving = stack.enter_context(vllm_serve(options.python, *serve_arguments(versions[0])))
        yield Subject("vllm serve, SSE", _served_by_vllm(serving, directory))
    else:
        one = stack.enter_context(engine_process(options.python, options.engine, versions[0], 1))
        yield Subject("engine, 1 thread", _alone(one))
        yield Subject(_PIPED, _alone(alone, piped=True))
    for server in options.servers:
        name, _, python = server.partition("=")
        extra = [f"--backend-config={options.engine},python={options.python}"]
        started = penstock(repository, *(extra if options.engine == "vllm" else ()), python=python)
        serving = stack.enter_context(started)
        for interval in intervals:
            for wire in options.wire:
                label = f"{name}, {wire}" + (f", {interval} ms" if interval else "")
                model = model_name(llm, interval)
                yield Subject(label, _served(serving, wire, model, directory))


def _alone(engine: EngineProcess, *, piped: bool = False) -> Measure:
    def measure(work: Work) -> dict[str, float]:
        found = engine.measure(work.streams, work.rounds, work.tokens, piped=piped)
        return found | {"tokens a response": 1.0, "engine": found.pop("cpu_per_token")}

    return measure


def _served(server: Server, wire: str, model: str, directory: Path) -> Measure:
    def measure(work: Work) -> dict[str, float]:
        if wire == "grpc":
            body = grpc_request(model, PROMPT, work.sampling).SerializeToString()
            return _read(server, server.target, wire, "", body, directory, work)
        if wire == "completions":
            return _completed(server, model, directory, work)
        target, path = f"127.0.0.1:{server.http_port}", f"/v2/models/{model}/generate_stream"
        body = sse_body(PROMPT, work.sampling)
        return _read(server, target, wire, path, body, directory, work)

    return measure


def _served_by_vllm(server: Server, directory: Path) -> Measure:
    return lambda work: _completed(server, "llm", directory, work)


def _completed(server: Server, model: str, directory: Path, work: Work) -> dict[str, float]:
    """Measured over OpenAI's API."""
    body = completion_body(model, PROMPT, work.sampling)
    target = f"127.0.0.1:{server.http_port}"
    return _read(server, target, "sse", "/v1/completions", body, directory, work)


def _read(
    server: Server, target: str, wire: str, path: str, body: bytes, directory: Path, work: Work
) -> dict[str, float]:
    file = directory / "request.bin"
    file.write_bytes(body)
    watched = server.processes()
    found = run(
        StreamLoad(
            target, wire, [str(file)], work.streams, work.rounds, paths=[path], watched=watched
        )
    )
    times = {
        name: getattr(found, name) for name in ("first_p50", "first_p99", "gap_p50", "gap_p99")
    }
    cpu = {name: used / work.all_tokens * 1e6 for name, used in found.cpu.items()}
    return {
        "tokens_per_second": work.all_tokens / found.seconds,
        "tokens a response": work.all_tokens / max(found.messages, 1),
        **times,
        **cpu,
    }


def _rows(llm: RandomLlm, subjects: list[Subject], options: argparse.Namespace) -> list[Row]:
    for subject in subjects:
        subject.measure(Work(1, 1, 8))
    works = [_work(subjects[0], streams, options.seconds) for streams in options.streams]

    def measure() -> list[Row]:
        return [row for work in works for row in _compared(llm, subjects, work)]

    return median_rows(options.rounds, measure)


def _work(floor: Subject, streams: int, seconds: float) -> Work:
    """About as much as the engine does in so many seconds."""
    short = Work(streams, 1, _FEWEST)
    steps = floor.measure(short)["tokens_per_second"] * seconds / streams
    tokens = min(max(int(steps), _FEWEST), _MOST)
    return Work(streams, max(1, round(steps / tokens)), tokens)


def _compared(llm: RandomLlm, subjects: list[Subject], work: Work) -> Iterator[Row]:
    floor: dict[str, float] = {}
    piped: dict[str, float] = {}
    for subject in subjects:
        found = subject.measure(work)
        floor = floor or found
        piped = found if subject.name == _PIPED else piped
        yield {
            "step": llm.name,
            "streams": str(work.streams),
            "what": subject.name,
            "calls": str(work.rounds * work.streams),
            "tokens": str(work.tokens),
            "tokens/s": found["tokens_per_second"],
            "ratio": found["tokens_per_second"] / floor["tokens_per_second"],
            "first p50 ms": found["first_p50"],
            "p99": found["first_p99"],
            "+first": found["first_p50"] - floor["first_p50"],
            **_against(piped, found),
            "gap p50 ms": found["gap_p50"],
            "gap p99": found["gap_p99"],
            "a response": found["tokens a response"],
            **{f"{name} us": found.get(name, 0.0) for name in _PROCESSES},
        }


def _against(piped: dict[str, float], found: dict[str, float]) -> Row:
    """Against the engine behind a pipe, where that was measured before."""
    if not piped:
        return {"of pipe": "", "+pipe": ""}
    return {
        "of pipe": found["tokens_per_second"] / piped["tokens_per_second"],
        "+pipe": found["first_p50"] - piped["first_p50"],
    }


if __name__ == "__main__":
    main()
