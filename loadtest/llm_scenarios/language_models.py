"""What the server adds to generation: an engine alone, the server around it, and `vllm serve`.

    python -m loadtest.llm_scenarios.language_models [--models 0.3ms 5ms 20ms] [--streams 1 8 32]
    python -m loadtest.llm_scenarios.language_models --engine vllm --python .venv-vllm/bin/python \
        --wire grpc completions chat

Of each model, named for how long a step of one stream takes on two cores, there are: the engine in
a process of its own, with all cores and with one thread; the server over each `--wire`, with each
`penstock.stream_interval_ms`; and for vLLM `vllm serve` with the same arguments. Wires are gRPC,
SSE of `generate_stream`, and OpenAI's streamed completions and chats, whose usage must count all
tokens. They run in turns and in one run, so that `ratio`, tokens a
second against the engine with all cores, holds on a machine that others use too. `+first` is what
the first token takes longer than there. That floor has all requests of a round in the same step,
and nobody to tell. So a second one is the engine behind a pipe: requests come from another process,
one after another, and their texts go back there, which is the least that a server in another
process has to do. `of pipe` and `+pipe` are against it. `of grpc` is the rate against gRPC of the
same server and interval; `of vllm` and `first of it` are rate and first token against `vllm serve`
over the same API, or over completions. The first token is that of an event with text. CPU
is microseconds a token: of the front, of the process that it started, of that one's own processes,
and of the client. `--servers compiled=PYTHON` adds the server of another environment.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from loadtest.engine_process import engine_process
from loadtest.llm_repository import known_intervals, model_name
from loadtest.llm_requests import OPENAI
from loadtest.llm_subjects import (
    PROCESSES,
    WIRES,
    Found,
    Running,
    Subject,
    Work,
    add_options,
    alone,
    running,
    served,
)
from loadtest.random_llms import MODELS, RandomLlm
from loadtest.report import Row, arguments, median_rows, show

_PEER = "completions"  # of OpenAI's API, for wires that the peer does not have
_FEWEST, _MOST = 32, 128  # tokens of a request
_PIPED = "engine, by a pipe"


def main() -> None:
    options = _options().parse_args()
    intervals = known_intervals(options.intervals)
    rows: list[Row] = []
    for llm in (model for model in MODELS if model.name in options.models):
        with tempfile.TemporaryDirectory() as temporary, ExitStack() as stack:
            directory = Path(temporary)
            started = stack.enter_context(running(directory, llm, options, intervals))
            subjects = [
                *_floors(started, stack, directory, options),
                *_servers(started, directory, llm, options),
            ]
            rows += _rows(llm, subjects, options)
    title = f"random models on {options.engine}: engine, server"
    show(title, rows, options.json)


def _options() -> argparse.ArgumentParser:
    parser = arguments(__doc__)
    parser.set_defaults(seconds=1.0)
    add_options(parser)
    parser.add_argument("--wire", nargs="+", choices=WIRES, default=["grpc", "sse", "chat"])
    parser.add_argument("--intervals", nargs="+", default=["0", "4"], help="in ms")
    return parser


def _floors(
    started: Running, stack: ExitStack, directory: Path, options: argparse.Namespace
) -> Iterator[Subject]:
    """The rivals that servers are compared with; the first is the floor of `ratio`."""
    yield Subject("engine, all cores", alone(started.engine))
    if started.peer is None:
        one = engine_process(options.python, options.engine, started.version, 1)
        yield Subject("engine, 1 thread", alone(stack.enter_context(one)))
        yield Subject(_PIPED, alone(started.engine, piped=True))
        return
    for wire in dict.fromkeys(map(_at_peer, options.wire)):
        yield Subject(_peer_name(wire), served(started.peer, wire, "llm", directory))


def _servers(
    started: Running, directory: Path, llm: RandomLlm, options: argparse.Namespace
) -> Iterator[Subject]:
    for name, server in started.servers.items():
        for interval in known_intervals(options.intervals):
            for wire in options.wire:
                yield Subject(
                    _name(name, wire, interval),
                    served(server, wire, model_name(llm, interval), directory),
                    {"grpc": _name(name, "grpc", interval), "vllm": _peer_name(_at_peer(wire))},
                )


def _name(server: str, wire: str, interval: str) -> str:
    return f"{server}, {wire}" + (f", {interval} ms" if interval else "")


def _at_peer(wire: str) -> str:
    return wire if wire in OPENAI else _PEER


def _peer_name(wire: str) -> str:
    return f"vllm serve, {wire}"


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
    all_found: dict[str, Found] = {}
    for subject in subjects:
        found = all_found[subject.name] = subject.measure(work)
        floor = all_found[subjects[0].name]
        rivals = {name: all_found.get(rival) for name, rival in subject.rivals.items()}
        yield {
            "step": llm.name,
            "streams": str(work.streams),
            "what": subject.name,
            "calls": str(work.rounds * work.streams),
            "tokens": str(work.tokens),
            "tokens/s": found["tokens_per_second"],
            "ratio": found["tokens_per_second"] / floor["tokens_per_second"],
            "of grpc": _ratio("tokens_per_second", found, rivals.get("grpc")),
            "of vllm": _ratio("tokens_per_second", found, rivals.get("vllm")),
            "first of it": _ratio("first_p50", found, rivals.get("vllm")),
            "first p50 ms": found["first_p50"],
            "p99": found["first_p99"],
            "+first": found["first_p50"] - floor["first_p50"],
            **_against_pipe(all_found.get(_PIPED), found),
            "gap p50 ms": found["gap_p50"],
            "gap p99": found["gap_p99"],
            "whole p50": found["whole_p50"],
            "a response": found["tokens a response"],
            **{f"{name} us": found.get(name, 0.0) for name in PROCESSES},
        }


def _ratio(figure: str, found: Found, rival: Found | None) -> float | str:
    """A figure against that of a rival, where that was measured before."""
    return found[figure] / rival[figure] if rival else ""


def _against_pipe(piped: Found | None, found: Found) -> Row:
    """Against the engine behind a pipe, where that was measured before."""
    more = found["first_p50"] - piped["first_p50"] if piped else ""
    return {"of pipe": _ratio("tokens_per_second", found, piped), "+pipe": more}


if __name__ == "__main__":
    main()
