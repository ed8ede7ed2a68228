"""Unary calls that no task waits for."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.core.buffer import Buffer
from penstock.core.errors import InternalError
from penstock.core.region import HostSlice, RegionSlice
from penstock.core.request import InferenceRequest, InferenceResponse
from penstock.core.stream import ResponseStream
from penstock.core.tensor import Tensor
from penstock.rpc.context import Reply
from penstock.rpc.responses import ResponseEncoder, UnaryAnswer
from penstock.shared_memory.registry import Regions
from penstock.shared_memory.system import SystemRegion

OUTPUT = InferenceResponse({"y": Tensor.from_numpy(np.array([5, 6], np.int32))})


class Outcome:
    """The callbacks of a call, in order."""

    def __init__(self) -> None:
        self.calls: list[Reply | BaseException | None] = []

    def returned(self, response: Reply | None) -> None:
        self.calls.append(response)

    def raised(self, error: BaseException) -> None:
        self.calls.append(error)


def answer(regions: Regions, outcome: Outcome) -> UnaryAnswer:
    """To a request whose output goes to the region."""
    request = InferenceRequest("m", output_places={"y": regions.slice("r", 8, 8)})
    return UnaryAnswer(request, outcome, ResponseEncoder(), regions)


@pytest.mark.contract("G-16")
def test_region_that_is_unregistered_meanwhile_goes_when_it_has_its_output(
    regions: Regions, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome, stream = Outcome(), ResponseStream(model_version="1")
    there: list[int] = []

    def write(place: RegionSlice, data: Buffer) -> None:
        there.append(len(regions.status(SystemRegion)))

    monkeypatch.setattr(HostSlice, "write", write)
    answer(regions, outcome).follow(stream)
    regions.unregister(SystemRegion, "r")
    stream.send(OUTPUT.as_final())
    assert there == [1]
    assert regions.status(SystemRegion) == []
    assert not isinstance(outcome.calls[0], Exception)


def test_two_responses_are_an_error(regions: Regions) -> None:
    outcome, stream = Outcome(), ResponseStream(model_version="1")
    answer(regions, outcome).follow(stream)
    stream.send(OUTPUT)
    stream.send(OUTPUT.as_final())
    (error,) = outcome.calls
    assert isinstance(error, InternalError)
    assert error.message == "expected a single response, got 2"


@pytest.mark.contract("G-16")
def test_cancelled_call_cancels_the_request_and_gets_no_callback(regions: Regions) -> None:
    outcome, stream = Outcome(), ResponseStream(model_version="1")
    leave = answer(regions, outcome).follow(stream)
    regions.unregister(SystemRegion, "r")
    assert leave is not None
    leave()
    assert stream.ended
    assert outcome.calls == []
    assert regions.status(SystemRegion) == []


def test_call_answered_at_once_has_no_cancel_callback(regions: Regions) -> None:
    outcome, stream = Outcome(), ResponseStream(model_version="1")
    stream.send(OUTPUT.as_final())
    assert answer(regions, outcome).follow(stream) is None
    assert len(outcome.calls) == 1
