"""Statistics as the protocol's JSON: every counter under its name."""

from __future__ import annotations

from penstock.inflight.statistics import ResponseStatistics, Statistics
from penstock.models.serving.answers import ModelStatistics
from penstock.server.statistics_json import statistics_json

NAMES = (
    *("success", "fail", "queue", "compute_input", "compute_infer", "compute_output"),
    *("cache_hit", "cache_miss"),
)
OF_RESPONSE = ("compute_infer", "compute_output", "success", "fail", "empty_response", "cancel")


def test_every_counter_stands_under_its_name() -> None:
    counted = Statistics(inference_count=7, execution_count=5, last_inference=11)
    for number, name in enumerate(NAMES, 1):
        getattr(counted, name).add(100 * number, number)
    for index in (1, 0):
        response = counted.responses[index] = ResponseStatistics()
        for number, name in enumerate(OF_RESPONSE, 1):
            getattr(response, name).add(10 * number + index, number)
    for rows in (4, 2):
        counted.executed(rows, rows, 20 * rows, 30 * rows)
    told = statistics_json(ModelStatistics("m", "3", counted))
    assert told == {
        "name": "m",
        "version": "3",
        "last_inference": 11,
        "inference_count": 7,
        "execution_count": 7,
        "inference_stats": {
            name: {"count": number, "ns": 100 * number} for number, name in enumerate(NAMES, 1)
        },
        "response_stats": {
            str(index): {
                name: {"count": number, "ns": 10 * number + index}
                for number, name in enumerate(OF_RESPONSE, 1)
            }
            for index in (0, 1)
        },
        "batch_stats": [
            {
                "batch_size": rows,
                "compute_input": {"count": 1, "ns": rows},
                "compute_infer": {"count": 1, "ns": 20 * rows},
                "compute_output": {"count": 1, "ns": 30 * rows},
            }
            for rows in (2, 4)
        ],
        "memory_usage": [],
    }
    assert [*told["response_stats"]] == ["0", "1"]
