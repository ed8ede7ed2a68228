"""Dimensions that are searched where none are asked for, by what the model is."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from penstock.tune.settings import BATCH, DELAY, ENGINE, INSTANCES, original
from penstock.tune.space import Dimension

_MOST_INSTANCES = 5
_BATCHES = (1, 2, 4, 8, 16, 32, 64, 128)
_DELAYS = (0, 100, 500, 2000)
_SEQUENCES = (4, 8, 16, 32, 64, 128, 256)
_BATCHED_TOKENS = (256, 512, 1024, 2048, 4096, 8192)
_IN_FLIGHT = ("vllm", "openvino_genai")
"""Backends whose engines batch by themselves, as `model.json` says."""


def automatic_values(
    config: Mapping[str, Any], engine: Mapping[str, Any]
) -> dict[str, tuple[Any, ...]]:
    """Values by the names of dimensions."""
    if config.get("backend") in _IN_FLIGHT:
        length = int(engine.get("max_model_len", 0))
        tokens = tuple(each for each in _BATCHED_TOKENS if each >= length)
        return {
            f"{ENGINE}max_num_seqs": _SEQUENCES,
            f"{ENGINE}max_num_batched_tokens": tokens or (length,),
        }
    values: dict[str, tuple[Any, ...]] = {}
    if "ensemble_scheduling" not in config:
        most = min(_MOST_INSTANCES, max(2, len(os.sched_getaffinity(0))))
        values[INSTANCES] = tuple(range(1, most + 1))
    if original(BATCH, config, engine) > 0:
        values[BATCH] = _BATCHES
        if "sequence_batching" not in config and "ensemble_scheduling" not in config:
            values[DELAY] = _DELAYS
    return values


def dimensions(
    values: Mapping[str, tuple[Any, ...]], config: Mapping[str, Any], engine: Mapping[str, Any]
) -> list[Dimension]:
    """The dimensions of a search, with the values that the model has now."""
    return [
        Dimension(name, chosen, original(name, config, engine)) for name, chosen in values.items()
    ]
