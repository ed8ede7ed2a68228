"""The time that a server adds to a whole answer: OpenAI's API without streaming, and the engine.

    python -m loadtest.llm_scenarios.whole_answers [--models 0.3ms 5ms] [--streams 1 8] \
        [--tokens 32]
    python -m loadtest.llm_scenarios.whole_answers --engine vllm --python .venv-vllm/bin/python

The engine in a process of its own, the server over completions and chats, and for vLLM `vllm serve`
with the same arguments (for OpenVINO the engine behind a pipe) get the same requests, a few at a
time and in turns, so that whatever else the machine does meets all of them. `p50 ms` is the median
over the turns of the time of a whole answer. `+ms` is the median of what it takes longer than the
engine's in the same turn, and `of vllm` that of the ratio to `vllm serve` over the same API. The
engine has the prompt of completions; the template of chats makes it longer by some tokens. CPU is
microseconds an answer.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from loadtest.llm_repository import known_intervals, model_name
from loadtest.llm_requests import OPENAI
from loadtest.llm_subjects import (
    PROCESSES,
    Found,
    Measure,
    Running,
    Subject,
    Work,
    add_options,
    alone,
    answered,
    running,
)
from loadtest.random_llms import MODELS, RandomLlm
from loadtest.report import Row, arguments, median_rows, show

_INTERVAL = "0"
_ENGINE = "engine"


def main() -> None:
    options = _options().parse_args()
    intervals = known_intervals([_INTERVAL])
    rows: list[Row] = []
    for llm in (model for model in MODELS if model.name in options.models):
        with (
            tempfile.TemporaryDirectory() as temporary,
            running(Path(temporary), llm, options, intervals) as started,
        ):
            model = model_name(llm, intervals[0])
            subjects = list(_subjects(started, Path(temporary), model, options.wire))
            rows += _rows(llm, subjects, options)
    show(f"whole answers of random models on {options.engine}", rows, options.json)


def _options() -> argparse.ArgumentParser:
    parser = arguments(__doc__, timed=False)
    add_options(parser)
    parser.set_defaults(models=["0.3ms", "5ms"], streams=[1, 8])
    parser.add_argument("--wire", nargs="+", choices=tuple(OPENAI), default=list(OPENAI))
    parser.add_argument("--tokens", type=int, default=32, help="of an answer")
    parser.add_argument("--turns", type=int, default=15, help="of all subjects in a round")
    parser.add_argument("--calls", type=int, default=3, help="of a stream in a turn")
    return parser


def _subjects(
    started: Running, directory: Path, model: str, wires: Sequence[str]
) -> Iterator[Subject]:
    """The engine, and what answers over each wire; the peer before those it is compared with."""
    yield Subject(_ENGINE, _warmed(alone(started.engine)))
    if started.peer is None:
        yield Subject("engine, by a pipe", alone(started.engine, piped=True))
    for wire in wires:
        peer = f"vllm serve, {wire}"
        if started.peer is not None:
            yield Subject(peer, answered(started.peer, wire, "llm", directory))
        for name, server in started.servers.items():
            measured = answered(server, wire, model, directory)
            yield Subject(f"{name}, {wire}", measured, {"vllm": peer})


def _warmed(measure: Measure) -> Measure:
    """With a call on every stream before those that are measured, as loads on servers have."""

    def measured(work: Work) -> Found:
        measure(Work(work.streams, 1, work.tokens))
        return measure(work)

    return measured


def _rows(llm: RandomLlm, subjects: list[Subject], options: argparse.Namespace) -> list[Row]:
    works = [Work(streams, options.calls, options.tokens) for streams in options.streams]

    def measure() -> list[Row]:
        return [row for work in works for row in compared(llm, subjects, work, options.turns)]

    return median_rows(options.rounds, measure)


def compared(llm: RandomLlm, subjects: list[Subject], work: Work, turns: int) -> Iterator[Row]:
    """A row for each subject, of so many turns."""
    found = [_turn(subjects, work) for _ in range(turns)]
    for subject in subjects:
        own = [turn[subject.name] for turn in found]
        engine = [turn[_ENGINE] for turn in found]
        rival = [turn[name] for turn in found if (name := subject.rivals.get("vllm")) in turn]
        yield {
            "step": llm.name,
            "streams": str(work.streams),
            "tokens": str(work.tokens),
            "what": subject.name,
            "answers": str(turns * work.rounds * work.streams),
            "p50 ms": statistics.median(one["whole_p50"] for one in own),
            "+ms": _paired(own, engine, lambda mine, theirs: mine - theirs),
            "of engine": _paired(own, engine, lambda mine, theirs: mine / theirs),
            "of vllm": _paired(own, rival, lambda mine, theirs: mine / theirs) if rival else "",
            **{
                f"{name} us": statistics.median(one.get(name, 0.0) for one in own) * work.tokens
                for name in PROCESSES
            },
        }


def _turn(subjects: list[Subject], work: Work) -> dict[str, Found]:
    """All subjects after each other."""
    return {subject.name: subject.measure(work) for subject in subjects}


def _paired(
    mine: Sequence[Found], theirs: Sequence[Found], compare: Callable[[float, float], float]
) -> float:
    """The median over turns of one time compared with the other of the same turn."""
    pairs = zip(mine, theirs, strict=True)
    return statistics.median(compare(one["whole_p50"], other["whole_p50"]) for one, other in pairs)


if __name__ == "__main__":
    main()
