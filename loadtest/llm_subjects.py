"""Subjects of a measurement with a language model: its engine alone, and servers by wire."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from loadtest.engine_process import EngineProcess, engine_process
from loadtest.engines import PROMPT
from loadtest.llm_repository import serve_arguments, write_llm
from loadtest.llm_requests import OPENAI, grpc_request, sse_body
from loadtest.process import Server, penstock, vllm_serve
from loadtest.random_llms import MODELS, RandomLlm
from loadtest.stream_load import StreamLoad, StreamOutcome, run, run_here

WIRES = ("grpc", "sse", *OPENAI)
PROCESSES = ("front", "engine", "core", "client")
_TIMES = ("first_p50", "first_p99", "gap_p50", "gap_p99", "whole_p50")

Found = dict[str, float]
"""Tokens a second and a response, times in milliseconds, CPU microseconds a token by process."""


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


Measure = Callable[[Work], Found]


@dataclass(frozen=True, slots=True)
class Subject:
    """A measured subject: an engine, or a server over a wire, with its measurement.

    `rivals` are the names of those it is compared with, by what the table calls them.
    """

    name: str
    measure: Measure
    rivals: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Running:
    """The engine of a model in a process of its own, our servers by name, and `vllm serve`.

    vLLM's engine alone has a peer.
    """

    engine: EngineProcess
    servers: Mapping[str, Server]
    peer: Server | None
    version: Path  # the directory of the model that engine and peer have


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options that say which models and servers are measured."""
    parser.add_argument("--engine", choices=("openvino_genai", "vllm"), default="openvino_genai")
    names = [model.name for model in MODELS]
    parser.add_argument("--models", nargs="+", choices=names, default=names)
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--python", default=sys.executable, help="the engine's interpreter")
    parser.add_argument(
        "--servers",
        nargs="+",
        default=[f"pure={sys.executable}"],
        help="NAME=PYTHON of each server's environment",
    )


@contextmanager
def running(
    directory: Path, llm: RandomLlm, options: argparse.Namespace, intervals: Sequence[str]
) -> Iterator[Running]:
    """All of them, ready; the servers have a model for each interval between responses."""
    repository = directory / "models"
    version, *_ = [write_llm(repository, llm, options.engine, interval) for interval in intervals]
    on_vllm = options.engine == "vllm"
    extra = [f"--backend-config=vllm,python={options.python}"] if on_vllm else []
    with ExitStack() as stack:
        enter = stack.enter_context
        engine = enter(engine_process(options.python, options.engine, version))
        peer = enter(vllm_serve(options.python, *serve_arguments(version))) if on_vllm else None
        named = [server.partition("=")[::2] for server in options.servers]
        servers = {
            name: enter(penstock(repository, *extra, python=python)) for name, python in named
        }
        yield Running(engine, servers, peer, version)


def alone(engine: EngineProcess, *, piped: bool = False) -> Measure:
    """The engine without a server; `piped` asks it from another process."""

    def measure(work: Work) -> Found:
        found = engine.measure(work.streams, work.rounds, work.tokens, piped=piped)
        return found | {"tokens a response": 1.0, "engine": found.pop("cpu_per_token")}

    return measure


def served(server: Server, wire: str, model: str, directory: Path) -> Measure:
    """A server's streams over a wire; requests are written into the directory."""

    def measure(work: Work) -> Found:
        return _found(run(_load(server, wire, model, directory, work)), work, wire)

    return measure


def answered(server: Server, wire: str, model: str, directory: Path) -> Measure:
    """A server's whole answers over OpenAI's API, asked for from this process."""

    def measure(work: Work) -> Found:
        load = _load(server, wire, model, directory, work, stream=False)
        return _found(run_here(load), work, wire)

    return measure


def _load(
    server: Server, wire: str, model: str, directory: Path, work: Work, *, stream: bool = True
) -> StreamLoad:
    target, path = f"127.0.0.1:{server.http_port}", ""
    if wire == "grpc":
        target = server.target
        body = grpc_request(model, PROMPT, work.sampling).SerializeToString()
    elif wire == "sse":
        path, body = f"/v2/models/{model}/generate_stream", sse_body(PROMPT, work.sampling)
    else:
        path = OPENAI[wire].path
        body = OPENAI[wire].body(model, PROMPT, work.sampling, stream=stream)
    file = directory / "request.bin"
    file.write_bytes(body)
    return StreamLoad(
        target,
        "grpc" if wire == "grpc" else "sse" if stream else "answer",
        [str(file)],
        work.streams,
        work.rounds,
        paths=[path],
        watched=server.processes(),
    )


def _found(outcome: StreamOutcome, work: Work, wire: str) -> Found:
    if wire in OPENAI and outcome.tokens != work.all_tokens:
        raise SystemExit(f"the usage of {wire} counts {outcome.tokens} of {work.all_tokens} tokens")
    times = {name: getattr(outcome, name) for name in _TIMES}
    cpu = {name: used / work.all_tokens * 1e6 for name, used in outcome.cpu.items()}
    return {
        "tokens_per_second": work.all_tokens / outcome.seconds,
        "tokens a response": work.all_tokens / max(outcome.messages, 1),
        **times,
        **cpu,
    }
