"""Requests that are scheduled by a batcher over instances of a test."""

from __future__ import annotations

from fakes import make_inference
from penstock.inflight.inference import Inference
from penstock.inflight.statistics import Statistics
from penstock.scheduling.batching.batch_queue import BatchPolicy
from penstock.scheduling.batching.dynamic_batcher import BatcherSettings, DynamicBatcher

EAGER = BatcherSettings(BatchPolicy(4))
PATIENT = BatcherSettings(BatchPolicy(4, max_queue_delay=1.0))


def scheduled(
    batcher: DynamicBatcher, ids: str, statistics: Statistics | None = None
) -> list[Inference]:
    inferences = [make_inference(id, statistics=statistics) for id in ids]
    for inference in inferences:
        batcher.schedule(inference)
    return inferences
