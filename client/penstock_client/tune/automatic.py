"""Dimensions that are searched where none are asked for, by what the model is."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from penstock_client.tune.composition import Composition, part_setting
from penstock_client.tune.settings import BATCH, DELAY, ENGINE, INSTANCES, original
from penstock_client.tune.space import Dimension

_MOST_INSTANCES = 5
_BATCHES = (1, 2, 4, 8, 16, 32, 64, 128)
_DELAYS = (0, 100, 500, 2000)
_SEQUENCES = (4, 8, 16, 32, 64, 128, 256)
_BATCHED_TOKENS = (256, 512, 1024, 2048, 4096, 8192)
_IN_FLIGHT = ("vllm", "openvino_genai")
"""Backends whose engines batch by themselves, as `model.json` says."""


def automatic_values(
    config: Mapping[str, Any], engine: Mapping[str, Any], least_batch: int = 1
) -> dict[str, tuple[Any, ...]]:
    """Values by the names of dimensions; requests have up to `least_batch` rows."""
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
        values[BATCH] = tuple(each for each in _BATCHES if each >= least_batch) or (least_batch,)
        if "sequence_batching" not in config and "ensemble_scheduling" not in config:
            values[DELAY] = _DELAYS
    return values


def composed_values(
    composition: Composition,
    configs: Mapping[str, Mapping[str, Any]],
    asked: Mapping[str, tuple[Any, ...]],
) -> dict[str, tuple[Any, ...]]:
    """Values for the model unless some are asked for, and for composing models without any."""
    main = composition.main
    of_parts = [
        (files, automatic_values(configs[files.name], files.engine, _rows(configs[main.name])))
        for files in composition.parts.values()
        if all(composition.owner(name)[0] is not files for name in asked)
    ]
    found = dict(asked) or automatic_values(configs[main.name], main.engine)
    if not asked and "ensemble_scheduling" in configs[main.name] and of_parts:
        found = {}  # an ensemble has no instances, and its rows are those of its clients
    for files, values in of_parts:
        found |= {part_setting(files.name, name): each for name, each in values.items()}
    return found


def _rows(config: Mapping[str, Any]) -> int:
    """The most rows of a request to an ensemble, which its steps get all at once."""
    return max(1, int(config.get(BATCH, 0))) if "ensemble_scheduling" in config else 1


def dimensions(
    values: Mapping[str, tuple[Any, ...]], original: Callable[[str], Any]
) -> list[Dimension]:
    """The dimensions of a search, with the values that the models have now."""
    return [Dimension(name, chosen, original(name)) for name, chosen in values.items()]
