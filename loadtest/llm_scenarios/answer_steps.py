"""Where the time of a whole answer goes: every step of it in the server, and the engine alone.

    python -m loadtest.llm_scenarios.answer_steps [--wire completions chat] [--streams 1 8]

Requests come to an idle engine in bursts, all of a burst at once, each on a connection of its own.
The server notes when they pass each step, as for `first_token`. `us` is how long that takes from
the step before: the median over the bursts of the mean over a burst's requests. `all of it` is the
median of the whole, near the sum of the rest. From the begin of a request's first step of the
engine to the end of its last, `in steps` is the time that steps take, `between steps` the other.
In turns with these bursts the engine in a process of its own has as many, of answers as long:
`engine` are its figures, and `more` is the median of the differences within a turn. Notes cost
about half a microsecond each. The server must not be compiled.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from loadtest.engine_process import EngineProcess, engine_process
from loadtest.engines import PROMPT
from loadtest.llm_repository import model_name, write_llm
from loadtest.llm_requests import OPENAI
from loadtest.places import results_file
from loadtest.process import penstock
from loadtest.random_llms import MODELS, RandomLlm
from loadtest.report import Row, show
from loadtest.stream_line import Line, http_line
from loadtest.stream_tally import Tally, Timed

_STEPS = (
    "client sent",
    "http read",
    "front sent",
    "process read",
    "handler begun",
    "body checked",
    "prompt made",
    "queued",
    "added",
    "first step begun",
    "last step ended",
    "answer built",
    "answer sent",
    "front has the answer",
    "http written",
    "client read",
)
_LAST = _STEPS.index("last step ended")
_NOTES = Path(__file__).parents[1] / "first_token"
_INTERVAL = "0"
_TURN = 4  # bursts, before which one warms up
_PAUSE = 0.002  # seconds between bursts

Notes = Mapping[str, Sequence[float]]
"""The times of a step, in order."""


class _Wholes(Tally):
    """Keeps when calls began and when their answers came."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[float] = []
        self.read: list[float] = []

    def ended(self, call: Timed, now: float) -> None:
        self.sent.append(call.start)
        self.read.append(now)
        super().ended(call, now)


class _Caller:
    """Connections to a server, on which a burst of calls begins at once."""

    def __init__(self, target: str, wire: str, model: str, options: argparse.Namespace) -> None:
        sampling = {"max_tokens": options.tokens, "temperature": 0, "ignore_eos": True}
        route = OPENAI[wire]
        self._message = route.body(model, PROMPT, sampling, stream=False)
        self._target, self._path = target, route.path
        self._poll = select.epoll()
        self._lines: dict[int, Line] = {}
        self.tally = _Wholes()

    def connect(self, streams: int) -> None:
        """Open so many connections."""
        for _ in range(streams):
            line = http_line(self._target, self._path, self.tally, lambda _: None, {})
            self._lines[line.fileno()] = line
            self._poll.register(line.fileno(), select.EPOLLIN)

    def burst(self) -> None:
        """One call on every connection, until the last is answered."""
        done = self.tally.calls + len(self._lines)
        for line in self._lines.values():
            line.start(self._message)
        while self.tally.calls < done:
            for number, _ in self._poll.poll(1.0):
                self._lines[number].read()
        time.sleep(_PAUSE)


def main() -> None:
    options = _options()
    rows: list[Row] = []
    for llm in (model for model in MODELS if model.name in options.models):
        for streams in options.streams:
            for wire in options.wire:
                rows += _measured(llm, streams, wire, options)
    show("the time of a whole answer", rows, options.json)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", default=["0.3ms"])
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--wire", nargs="+", choices=tuple(OPENAI), default=list(OPENAI))
    parser.add_argument("--tokens", type=int, default=32, help="of an answer")
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--json", type=results_file, help="where to write the figures")
    return parser.parse_args()


def _measured(
    llm: RandomLlm, streams: int, wire: str, options: argparse.Namespace
) -> Iterator[Row]:
    alone: list[Mapping[str, float]] = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        version = write_llm(folder / "models", llm, "openvino_genai", _INTERVAL)
        os.environ["FIRST_TOKEN_NOTES"] = str(folder / "notes-")
        with (
            penstock(
                folder / "models", "--model-env=FIRST_TOKEN_NOTES,PYTHONPATH", paths=[_NOTES]
            ) as server,
            engine_process(sys.executable, "openvino_genai", version) as engine,
        ):
            target = f"127.0.0.1:{server.http_port}"
            caller = _Caller(target, wire, model_name(llm, _INTERVAL), options)
            caller.connect(streams)
            for _ in range(options.turns):
                for _ in range(1 + _TURN):
                    caller.burst()
                alone += _engine_bursts(engine, streams, options.tokens)
        del os.environ["FIRST_TOKEN_NOTES"]
        found = _notes(folder)
    found["client sent"], found["client read"] = sorted(caller.tally.sent), caller.tally.read
    bursts = _bursts(found, streams)
    yield from answer_rows(llm.name, wire, streams, bursts, alone)


def _engine_bursts(engine: EngineProcess, streams: int, tokens: int) -> list[Mapping[str, float]]:
    """Figures of the engine alone for the bursts of a turn."""
    engine.measure(streams, 1, tokens)
    return [engine.measure(streams, 1, tokens) for _ in range(_TURN)]


def _notes(folder: Path) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for file in folder.glob("notes-*"):
        for step, at in json.loads(file.read_text()):
            found.setdefault(step, []).append(at)
    return found


def _bursts(found: Notes, streams: int) -> list[Notes]:
    """The notes of each burst, but of those that warm up."""
    begins = found["client sent"][::streams]
    bursts: list[Notes] = []
    for place, (begin, end) in enumerate(pairwise([*begins, float("inf")])):
        burst = {step: [at for at in times if begin <= at < end] for step, times in found.items()}
        if place % (1 + _TURN):
            bursts.append(burst)
    return bursts


def answer_rows(
    step: str,
    wire: str,
    streams: int,
    bursts: Sequence[Notes],
    alone: Sequence[Mapping[str, float]],
) -> Iterator[Row]:
    """A row for the way to each step, and those that the engine alone has, too.

    `alone` has the engine's figures for as many bursts. A burst of which notes came late is left
    out.
    """
    pairs = [
        (_times(burst, streams), _engine_times(one))
        for burst, one in zip(bursts, alone, strict=True)
        if all(len(burst.get(step, ())) == streams for step in _STEPS if "step" not in step)
    ]
    for name in pairs[0][0]:
        own = [mine[name] for mine, _ in pairs]
        theirs = [engine[name] for _, engine in pairs if name in engine]
        more = [mine[name] - engine[name] for mine, engine in pairs if name in engine]
        yield {
            "step": step,
            "wire": wire,
            "streams": str(streams),
            "bursts": str(len(pairs)),
            "until": name,
            "us": statistics.median(own),
            "engine": statistics.median(theirs) if theirs else "",
            "more": statistics.median(more) if more else "",
        }


def _times(burst: Notes, streams: int) -> dict[str, float]:
    """Microseconds until each step from the one before it, as means over a burst's requests."""
    steps = list(zip(burst["step begun"], burst["step ended"], strict=True))
    # Of each request, the step that it is in first, and the one that ends last before its answer.
    firsts = [min(b for b, _ in steps if b >= at) for at in burst["added"]]
    lasts = [max(e for _, e in steps if e <= at) for at in burst["answer built"]]
    notes = {**burst, "first step begun": firsts, "last step ended": lasts}
    passed = {step: statistics.mean(notes[step]) * 1e6 for step in _STEPS}
    within = [
        sum(e - b for b, e in steps if first <= b and e <= last)
        for first, last in zip(firsts, lasts, strict=True)
    ]
    ways = {after: passed[after] - passed[before] for before, after in pairwise(_STEPS)}
    in_steps = statistics.mean(within) * 1e6
    split = {"in steps": in_steps, "between steps": ways[_STEPS[_LAST]] - in_steps}
    others = [(name, us) for name, us in ways.items() if name != _STEPS[_LAST]]
    place = _LAST - 1
    whole = {"all of it": passed[_STEPS[-1]] - passed[_STEPS[0]]}
    return {**dict(others[:place]), **split, **dict(others[place:]), **whole}


def _engine_times(found: Mapping[str, float]) -> dict[str, float]:
    """The same of the engine alone, of which nothing else is known."""
    whole, within = found["whole_p50"] * 1e3, found["steps_ms"] * 1e3
    return {"in steps": within, "between steps": whole - within, "all of it": whole}


if __name__ == "__main__":
    main()
