"""`EnsembleAnswer`: the responses of an ensemble to one request, and their statistics."""

from __future__ import annotations

import time
from collections.abc import Sequence

from penstock.core.errors import (
    InferenceError,
    InvalidRequestError,
    RejectedError,
    UnavailableError,
    request_prefix,
)
from penstock.core.request import InferenceResponse
from penstock.inflight.inference import ComputeTimes, Inference
from penstock.inflight.statistics import FailureReason


class EnsembleAnswer:
    """Sends the responses to one request; `times` are the sums of its steps' compute times."""

    __slots__ = ("_inference", "_name", "sink", "times")

    def __init__(self, name: str, inference: Inference) -> None:
        self._name = name
        self._inference = inference
        self.sink = inference.stream
        self.times = ComputeTimes()

    def send(self, responses: Sequence[InferenceResponse], *, last: bool) -> None:
        """Send responses; `last` makes the final one end the stream."""
        for left, response in zip(range(len(responses) - 1, -1, -1), responses, strict=True):
            if last and not left:
                self._count_success()
                response = response.as_final()
            self.sink.send(response)

    def end(self, *, decoupled: bool) -> None:
        """End without a further response, which is an error unless the ensemble is decoupled."""
        if decoupled:
            self._count_success()
            self.sink.end()
            return
        prefix = request_prefix(self._inference.request.id)
        text = "unexpected deadlock, at least one output is not set while no more ensemble steps"
        self.fail(InvalidRequestError(f"{prefix}{text} can be made"))

    def fail(self, error: InferenceError) -> None:
        """Answer with the error of a step (contract E-07)."""
        # The real server counts such a failure here a second time (contract ME-28).
        statistics = self._inference.statistics
        statistics.fail.add(time.monotonic_ns() - self._inference.start)
        statistics.failures[FailureReason.OTHER] += 1
        # The queue of another model rejected it; an ensemble has none.
        cls = UnavailableError if isinstance(error, RejectedError) else type(error)
        self.sink.fail(cls(f"in ensemble '{self._name}', {error.message}"))

    def _count_success(self) -> None:
        """Count the request, with the sums of its steps' compute times (contract E-15)."""
        inference, times = self._inference, self.times
        inference.compute_input_end = inference.compute_start + times.compute_input
        inference.compute_output_start = inference.compute_input_end + times.compute_infer
        inference.compute_end = inference.compute_output_start + times.compute_output
        inference.statistics.executed(
            inference.rows, times.compute_input, times.compute_infer, times.compute_output
        )
