"""One measurement: `penstock perf` against a server with a variant, and the memory meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from penstock_client.perf.measure import Progress
from penstock_client.perf.options import GRPC, Options, Target
from penstock_client.perf.reading import read_options
from penstock_client.perf.session import Session
from penstock_client.tune.load.loads import Load
from penstock_client.tune.load.measured_server import MeasuredServer

_MEMORY_SECONDS = 0.5
_LANGUAGE_MODEL = {
    "--prompt-words": "normal:64:16",
    "--output-tokens": "32",
    # Each token in a response of its own: responses are then tokens, and gaps are between them.
    "--request-parameter": "penstock_coalesce:false:bool",
}
_PROMPTS = ("--prompt", "--prompt-file", "--prompt-words", "--output-tokens", "--input-data")
_INPUTS = (*_PROMPTS, "--input-count")


@dataclass(frozen=True, slots=True)
class Measurement:
    """Figures of one load, or of its part until Ctrl-C."""

    figures: dict[str, Any]
    interrupted: bool


def is_language_model(config: Mapping[str, Any]) -> bool:
    """Whether a model takes prompts as Triton's language models do."""
    return any(each.get("name") == "text_input" for each in config.get("input", ()))


def perf_words(model: str, words: Sequence[str], config: Mapping[str, Any]) -> list[str]:
    """The command line of `penstock perf`; a language model gets prompts if no others are given."""
    given = {word.partition("=")[0] for word in words}
    wants = is_language_model(config) and not given.intersection(_PROMPTS)
    prompts = [text for pair in _LANGUAGE_MODEL.items() for text in pair] if wants else []
    return ["-m", model, *prompts, *words]


def given_inputs(words: Sequence[str]) -> bool:
    """Whether options name inputs; without them one request is sent over and over."""
    return not {word.partition("=")[0] for word in words}.isdisjoint(_INPUTS)


class LoadTest:
    """Puts loads on one server; `report` shows progress."""

    def __init__(
        self, words: Sequence[str], server: MeasuredServer, report: Callable[[Progress], None]
    ) -> None:
        self._options = _aimed(read_options(words, {}), server)
        self._server = server
        self._report = report
        self._most = 0
        self._next = 0.0

    def measure(self, load: Load) -> Measurement:
        """Put on one load; raises `PerfError` if nothing can be sent."""
        self._most = 0
        options = replace(
            self._options,
            points=[load.point],
            request=replace(self._options.request, batch=load.batch),
        )
        session = Session(options, lambda _: None, self._progress)
        outcome = session.run()
        self._look()
        (figures,) = outcome.points
        figures["load"]["label"] = load.label
        return Measurement(figures | self._memory(figures), outcome.interrupted)

    def _progress(self, progress: Progress) -> None:
        self._report(progress)
        if (now := time.monotonic()) >= self._next:
            self._look()
            self._next = now + _MEMORY_SECONDS

    def _look(self) -> None:
        self._most = max(self._most, self._server.memory() or 0)

    def _memory(self, figures: Mapping[str, Any]) -> dict[str, Any]:
        """The most memory that was in use; `model_memory_bytes` is without the empty server's."""
        gpus = figures["server"].get("metrics", {}).get("gpus", [])
        used = [gpu["memory_used_bytes"] for gpu in gpus if gpu["memory_used_bytes"] is not None]
        return {
            "memory_bytes": self._most or None,
            "model_memory_bytes": max(0, self._most - self._server.memory_without_model) or None,
            "gpu_memory_bytes": sum(used) if used else None,
        }


def _aimed(options: Options, server: MeasuredServer) -> Options:
    """The options, aimed at this server whatever its ports are."""
    name = "grpc" if options.request.wire == GRPC else "http"
    target = Target(server.endpoint(name), "", server.metrics, server.pid)
    return replace(options, targets=[target])
