"""Counters as messages of the statistics extension."""

from __future__ import annotations

import pytest

from penstock.inflight.statistics import ResponseStatistics, Statistics
from penstock.models.serving.answers import ModelStatistics
from penstock.protocol import grpc_service_pb2 as pb
from penstock.rpc.control_messages import encode_statistics


@pytest.mark.contract("ST-01", "ST-02", "ST-05")
def test_nothing_done_is_all_zeros() -> None:
    message = encode_statistics(ModelStatistics("m", "1", Statistics()))
    zero = pb.StatisticDuration()
    expected = pb.ModelStatistics(name="m", version="1")
    for field in pb.InferStatistics.DESCRIPTOR.fields:
        getattr(expected.inference_stats, field.name).CopyFrom(zero)
    assert message == expected


@pytest.mark.contract("ST-01", "ST-02")
def test_every_duration_is_in_its_place() -> None:
    statistics = Statistics()
    names = [field.name for field in pb.InferStatistics.DESCRIPTOR.fields]
    for count, name in enumerate(names, 1):
        getattr(statistics, name).add(count * 1000, count)
    stats = encode_statistics(ModelStatistics("m", "1", statistics)).inference_stats
    assert [getattr(stats, name).count for name in names] == list(range(1, len(names) + 1))
    assert [getattr(stats, name).ns for name in names] == [
        count * 1000 for count in range(1, len(names) + 1)
    ]


@pytest.mark.contract("ST-03")
def test_batches_are_listed_by_their_size() -> None:
    statistics = Statistics()
    for rows in (4, 1, 4):
        statistics.executed(rows, 10, 20, 30)
    batches = encode_statistics(ModelStatistics("m", "1", statistics)).batch_stats
    assert [(b.batch_size, b.compute_infer.count, b.compute_infer.ns) for b in batches] == [
        (1, 1, 20),
        (4, 2, 40),
    ]
    assert [b.compute_input.ns for b in batches] == [10, 20]
    assert [b.compute_output.ns for b in batches] == [30, 60]


@pytest.mark.contract("ST-04")
def test_responses_are_named_by_their_index() -> None:
    statistics = Statistics(responses={0: ResponseStatistics(), 12: ResponseStatistics()})
    names = [field.name for field in pb.InferResponseStatistics.DESCRIPTOR.fields]
    for count, name in enumerate(names, 1):
        getattr(statistics.responses[12], name).add(count * 1000, count)
    found = encode_statistics(ModelStatistics("m", "1", statistics)).response_stats
    assert sorted(found) == ["0", "12"]
    assert [getattr(found["12"], name).count for name in names] == [1, 2, 3, 4, 5, 6]
    assert [getattr(found["12"], name).ns for name in names] == [1000 * n for n in range(1, 7)]
