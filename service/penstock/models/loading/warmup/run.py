"""Running samples on one instance. They are counted as any request is, as clients expect."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from penstock.core.errors import InferenceError, ModelLoadError
from penstock.inflight.inference import Inference
from penstock.inflight.statistics import Statistics
from penstock.models.loading.warmup.samples import WarmupSample
from penstock.models.serving.loaded_model import ModelInstance


async def warm_up(
    instance: ModelInstance,
    samples: Iterable[WarmupSample],
    max_batch_size: int,
    statistics: Statistics,
) -> None:
    """Have the instance answer every sample; raises `ModelLoadError` when it fails to (I-20)."""
    for sample in samples:
        for _ in range(sample.count):
            failures = await _failures(instance, sample, max(1, max_batch_size), statistics)
            if failures:
                told = "".join(f"{failure}; " for failure in failures)
                raise ModelLoadError(f"failed to run warmup sample '{sample.name}': {told}")


async def _failures(
    instance: ModelInstance, sample: WarmupSample, most: int, statistics: Statistics
) -> Sequence[str]:
    if sample.size > most:
        refusal = f"batch size {sample.size} for '{instance.name}', max allowed is {most}"
        return [refusal] * sample.size
    await _turn(instance)
    batch = [Inference(sample.request, 1, statistics) for _ in range(sample.size)]
    done = asyncio.Event()
    instance.execute(batch, done.set)
    try:
        failures = [text for inference in batch if (text := await _failure(inference))]
        await done.wait()
    finally:
        for inference in batch:
            inference.stream.close()
    return failures


async def _turn(instance: ModelInstance) -> None:
    """Wait until the instance may execute: others may hold what it needs."""
    if instance.available:
        return
    changed = asyncio.Event()
    on_available, on_lost = instance.on_available, instance.on_lost
    instance.on_available = instance.on_lost = changed.set
    try:
        while not instance.available:
            if instance.lost:
                raise ModelLoadError(f"instance '{instance.name}': {instance.why_unavailable}")
            await changed.wait()
            changed.clear()
    finally:
        instance.on_available, instance.on_lost = on_available, on_lost


async def _failure(inference: Inference) -> str:
    """Why a request failed, once all of its responses are in; empty when it did not."""
    text = ""
    try:
        async for response in inference.stream:
            if response.error is not None:
                text = response.error.message
    except InferenceError as error:
        text = error.message
    return text
