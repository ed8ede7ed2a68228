"""`TracedResponses`: notes the responses of a traced request in its timeline."""

from __future__ import annotations

import time

from penstock.core.request import InferenceResponse
from penstock.core.timeline import Timeline
from penstock.inflight.latencies import Transform

FIRST_RESPONSE = "FIRST_RESPONSE"


class TracedResponses:
    """A transform that notes the responses of a traced request, in front of another transform."""

    __slots__ = ("_count", "_timeline", "_transform")

    def __init__(self, timeline: Timeline, transform: Transform | None) -> None:
        self._timeline = timeline
        self._transform = transform
        self._count = 0

    def __call__(self, response: InferenceResponse) -> InferenceResponse:
        timeline = self._timeline
        self._count += 1
        if self._count == 1:
            timeline.mark(FIRST_RESPONSE, time.monotonic_ns())
        timeline.facts["responses"] = self._count
        if timeline.trace.takes_tensors:
            timeline.add_tensors("TENSOR_BACKEND_OUTPUT", response.outputs)
        return response if self._transform is None else self._transform(response)
