"""The loop of a process of the load, in this process: what it sends when, and how it ends."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from harness.serving import Served
from penstock.protocol import grpc_service_pb2 as pb
from penstock_client.perf.load.job import ClosedLoop, Job, Message, OpenLoop, Sequences
from penstock_client.perf.load.plan import Limits, Point, Traffic, jobs
from penstock_client.perf.load.results import Collected, Results
from penstock_client.perf.load.slots import Slots
from penstock_client.perf.load.worker import Worker, arrivals
from penstock_client.perf.options import RequestOptions, SequenceOptions, Target
from penstock_client.perf.requests.tensors import TensorOptions
from penstock_client.perf.traffic import traffic_for
from penstock_client.perf.wire.endpoint import Endpoint


@pytest.fixture
def traffic(served: Served) -> Iterator[Traffic]:
    endpoint = Endpoint("127.0.0.1", served.ports["grpc"])
    with traffic_for(Target(endpoint), RequestOptions("identity")) as traffic:
        yield traffic


def _ran(job: Job, stop_after: float = 0.0) -> tuple[Results, str]:
    """The results of a worker that ran the job, and its problem; it is stopped after some time."""
    told: list[Message] = []
    reading, writing = os.pipe()
    worker = Worker(job, told.append, reading)
    worker.connect()
    stopper = threading.Timer(stop_after, os.close, [writing])
    if stop_after:
        stopper.start()
    worker.run(time.perf_counter())
    worker.close()
    if stop_after:
        stopper.join()
    else:
        os.close(writing)
    os.close(reading)
    collected = Collected()
    for message in told:
        collected.add(0, message)  # type: ignore[arg-type]
    return collected.results(), worker.problem


def test_as_many_requests_as_are_asked_for(traffic: Traffic) -> None:
    (job,) = jobs(traffic, Point(concurrency=3), Limits(requests=50))
    results, problem = _ran(job)
    assert (len(results.times), int(results.answered.sum()), problem) == (50, 50, "")
    assert np.all(results.start <= results.first)
    assert np.all(results.last <= results.end)


def test_answers_behind_the_time_limit_are_failures(traffic: Traffic) -> None:
    (job,) = jobs(traffic, Point(concurrency=1), Limits(requests=5))
    results, _ = _ran(replace(job, timeout=1e-9))  # they come before the worker gives them up
    assert results.error_counts() == {"no answer within 1e-09 s": 5}


def test_parent_ends_the_load(traffic: Traffic) -> None:
    (job,) = jobs(traffic, Point(concurrency=2), Limits(duration=60.0))
    results, _ = _ran(job, stop_after=0.2)
    assert int(results.answered.sum()) > 0
    assert int(results.cut_off.sum()) <= 2
    assert results.end.max() - results.start.min() < 10


def test_open_loop_sends_when_requests_are_due(traffic: Traffic) -> None:
    (job,) = jobs(traffic, Point(rate=100.0), Limits(duration=0.3, warmup=0.0))
    results, _ = _ran(job)
    assert np.diff(np.sort(results.due)) == pytest.approx(0.01)
    assert len(results.times) in (30, 31)
    assert np.all(results.start >= results.due)


@pytest.mark.slow
def test_what_was_due_counts_where_it_was_never_sent(traffic: Traffic) -> None:
    """A process cannot even count so many requests in their time, a busy one far fewer."""
    limits = Limits(duration=0.02, warmup=0.0, drain=0.0)
    (job,) = jobs(traffic, Point(rate=1e7), limits)
    results, _ = _ran(job)
    assert len(results.due) == pytest.approx(200_000, abs=1)
    assert int(results.cut_off.sum()) > 100_000


def test_more_requests_than_may_be_under_way_wait(traffic: Traffic) -> None:
    limits = Limits(duration=0.2, warmup=0.0, most_in_flight=1)
    (job,) = jobs(traffic, Point(times=(0.0,) * 20), limits)
    results, _ = _ran(job)
    assert int(results.answered.sum()) == 20
    assert np.all(np.sort(results.start)[1:] >= np.sort(results.end)[:-1])


@pytest.mark.parametrize("count", [1, 2, 3])
def test_processes_together_send_what_one_would(traffic: Traffic, count: int) -> None:
    point, limits = Point(gaps=(0.01, 0.03)), Limits(processes=count)
    found: list[float] = []
    for job in jobs(traffic, point, limits):
        assert isinstance(job.shape, OpenLoop)
        found += islice(arrivals(job.shape, 0.0), 12)
    assert sorted(found)[:6] == pytest.approx([0.01, 0.04, 0.05, 0.08, 0.09, 0.12])


def test_random_arrivals_keep_their_rate() -> None:
    times = list(islice(arrivals(OpenLoop(rate=50.0, poisson=True, seed=3), 0.0), 4000))
    gaps = np.diff(times)
    assert gaps.mean() == pytest.approx(0.02, rel=0.1)
    assert gaps.std() == pytest.approx(0.02, rel=0.1)


def test_sequences_of_a_slot_follow_each_other(traffic: Traffic) -> None:
    job = Job(
        traffic.endpoint, False, False, traffic.payloads, ClosedLoop(1), 1, 1.0,
        sequences=Sequences((2, 3), first_id=1 << 40),
    )  # fmt: skip
    slots = Slots(job)
    messages = [slots.next(0)[1][-1][5:] for _ in range(5)]
    found = [pb.ModelInferRequest.FromString(message).parameters for message in messages]
    ids = [each["sequence_id"].int64_param - (1 << 40) for each in found]
    assert ids == [0, 0, 1, 1, 1]
    starts = ["sequence_start" in each for each in found]
    ends = ["sequence_end" in each for each in found]
    assert starts == [True, False, True, False, False]
    assert ends == [False, True, False, False, True]


def test_each_sequence_takes_the_next_stream_of_a_file(served: Served, tmp_path: Path) -> None:
    """Over and over, where a sequence is longer than its stream."""
    rows = [[float(number)] * 4 for number in range(3)]
    data = {"data": [[{"IN": rows[0]}, {"IN": rows[1]}], [{"IN": rows[2]}]]}
    (tmp_path / "streams.json").write_text(json.dumps(data))
    endpoint = Endpoint("127.0.0.1", served.ports["grpc"])
    sequences = SequenceOptions(1, length=3, variation=0.0)
    options = RequestOptions("sequence", input_file=tmp_path / "streams.json", sequences=sequences)
    with traffic_for(Target(endpoint), options) as traffic:
        (job,) = jobs(traffic, Point(concurrency=1), Limits())
        slots = Slots(job)
    assert [slots.next(0)[0] for _ in range(9)] == [0, 1, 0, 2, 2, 2, 0, 1, 0]


def test_requests_are_made_with_contents_of_their_own(served: Served) -> None:
    endpoint = Endpoint("127.0.0.1", served.ports["grpc"])
    with traffic_for(
        Target(endpoint), RequestOptions("identity", tensors=TensorOptions(count=3))
    ) as traffic:
        assert len({each.body for each in traffic.payloads}) == 3
