"""Where the time to a first token goes: every step from a client's request to the token's coming.

    python -m loadtest.llm_scenarios.first_token [--models 0.3ms 5ms] [--streams 1 8 32]

Requests come in bursts to an engine that is idle, all of a burst at once and over gRPC. The server
notes when they pass each step. Requests and first tokens keep their order on the way, so the k-th
of a step is the k-th of the next. `us` is how long that takes from the step before, the median over
the bursts of the mean over a burst's requests; `first` and `last` are of these requests of a burst.
After that, `between steps` is the time from the end of one step to the beginning of the next, in
which tokens are decoded and sent, and `a step` how long the steps take that only decode: mean,
median, and p99.
Notes cost about half a microsecond each. The server must not be compiled.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from loadtest.engines import PROMPT
from loadtest.llm_repository import model_name, write_llm
from loadtest.llm_requests import grpc_request
from loadtest.places import results_file
from loadtest.process import penstock
from loadtest.random_llms import MODELS, RandomLlm
from loadtest.report import Row, show
from loadtest.stream_line import grpc_line
from loadtest.stream_tally import Tally, Timed

_STEPS = (
    "client sent",
    "front read",
    "front sent",
    "process read",
    "request begun",
    "tokenized",
    "added",
    "step begun",
    "step ended",
    "token sent",
    "front has the token",
    "front wrote",
    "client read",
)
_NOTES = Path(__file__).parents[1] / "first_token"
_TOKENS = 32
_PAUSE = 0.002  # seconds between bursts

Notes = Mapping[str, Sequence[float]]
"""The times of a step, in order."""


class _Firsts(Tally):
    """Keeps when calls began and when their first messages came."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[float] = []
        self.read: list[float] = []

    def message(self, call: Timed, now: float) -> None:
        if not call.last:
            self.sent.append(call.start)
            self.read.append(now)
        super().message(call, now)


def main() -> None:
    options = _options()
    rows: list[Row] = []
    for llm in (model for model in MODELS if model.name in options.models):
        for streams in options.streams:
            rows += _measured(llm, streams, options.bursts)
    show("the time to a first token", rows, options.json)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", default=["0.3ms", "5ms"])
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--bursts", type=int, default=40)
    parser.add_argument("--json", type=results_file, help="where to write the figures")
    return parser.parse_args()


def _measured(llm: RandomLlm, streams: int, bursts: int) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_llm(folder / "models", llm, "openvino_genai", "4")
        os.environ["FIRST_TOKEN_NOTES"] = str(folder / "notes-")
        with penstock(
            folder / "models", "--model-env=FIRST_TOKEN_NOTES,PYTHONPATH", paths=[_NOTES]
        ) as server:
            tally = _burst_calls(server.target, model_name(llm, "4"), streams, bursts)
        del os.environ["FIRST_TOKEN_NOTES"]
        found: dict[str, list[float]] = {step: [] for step in _STEPS}
        for file in folder.glob("notes-*"):
            for step, at in json.loads(file.read_text()):
                found.setdefault(step, []).append(at)
    found["client sent"], found["client read"] = sorted(tally.sent), sorted(tally.read)
    yield from _rows(llm, streams, [*_bursts(found, streams)])
    yield from _step_rows(llm, streams, found)


def _burst_calls(target: str, model: str, streams: int, bursts: int) -> _Firsts:
    sampling = {"max_tokens": _TOKENS, "temperature": 0, "ignore_eos": True}
    message = grpc_request(model, PROMPT, sampling).SerializeToString()
    tally, poll = _Firsts(), select.epoll()
    lines = [grpc_line(target, tally, lambda _: None, {}) for _ in range(min(4, streams))]
    by_number = {line.fileno(): line for line in lines}
    for number in by_number:
        poll.register(number, select.EPOLLIN)
    for burst in range(1, bursts + 1):
        for number in range(streams):
            lines[number % len(lines)].start(message)
        while tally.calls < burst * streams:
            for number, _ in poll.poll(1.0):
                by_number[number].read()
        time.sleep(_PAUSE)
    return tally


def _bursts(found: Notes, streams: int) -> Iterator[Notes]:
    """The notes of each burst; the first ones, which warm the server up, are left out."""
    begins = found["client sent"][::streams]
    for begin, end in zip(begins[5:], [*begins[6:], float("inf")], strict=True):
        burst = {step: [at for at in times if begin <= at < end] for step, times in found.items()}
        steps = list(zip(burst["step begun"], burst["step ended"], strict=True))
        # Of each request, the step that it is in first, which begins once it was added; and the one
        # that ends last before its token is sent.
        burst["step begun"] = [min(b for b, _ in steps if b >= at) for at in burst["added"]]
        burst["step ended"] = [max(e for _, e in steps if e <= at) for at in burst["token sent"]]
        if all(len(burst[step]) == streams for step in _STEPS):
            yield burst


def _rows(llm: RandomLlm, streams: int, bursts: Sequence[Notes]) -> Iterator[Row]:
    common = {"step": llm.name, "streams": str(streams), "bursts": str(len(bursts))}
    whole = [*pairwise(_STEPS), (_STEPS[0], _STEPS[-1])]
    for before, after in whole:
        each = [
            [(b - a) * 1e6 for a, b in zip(burst[before], burst[after], strict=True)]
            for burst in bursts
        ]
        all_of_it = (before, after) == whole[-1]
        yield {
            **common,
            "until": "all of it" if all_of_it else after,
            "us": statistics.median(statistics.mean(times) for times in each),
            "first": statistics.median(times[0] for times in each),
            "last": statistics.median(times[-1] for times in each),
        }


def _step_rows(llm: RandomLlm, streams: int, found: Notes) -> Iterator[Row]:
    """Rows of the steps that only decode: those after the first two of a burst."""
    begun, ended = found["step begun"], found["step ended"]
    sent = found["token sent"][streams - 1 :: streams]  # the last first tokens of the bursts
    pairs = [(i, begun[i] - ended[i - 1]) for i in range(1, len(begun))]
    quick = [(i, gap) for i, gap in pairs if gap < _PAUSE / 2]
    decoding = [(i, gap) for i, gap in quick if not any(abs(begun[i] - at) < 1e-3 for at in sent)]
    common = {"step": llm.name, "streams": str(streams), "bursts": str(len(sent))}
    for what, times in (
        ("between steps", [gap for _, gap in decoding]),
        ("a step", [ended[i] - begun[i] for i, _ in decoding]),
    ):
        ranked = sorted(times)
        yield {
            **common,
            "until": what,
            "us": statistics.mean(ranked) * 1e6,
            "first": ranked[len(ranked) // 2] * 1e6,
            "last": ranked[int(len(ranked) * 0.99)] * 1e6,
        }


if __name__ == "__main__":
    main()
