"""Warmup: sample requests that every instance answers before its model is ready (I-19 to I-21)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np

from penstock.core.config import ModelConfig, Warmup
from penstock.core.errors import InferenceError, ModelLoadError
from penstock.core.request import InferenceRequest
from penstock.core.tensor import DataType, Tensor
from penstock.inflight.inference import Inference
from penstock.inflight.statistics import Statistics
from penstock.models.config.validation.files import WARMUP
from penstock.models.repository.named_file import read_named
from penstock.models.serving.admission import Admission, request_reshape
from penstock.models.serving.instance import ModelInstance

logger = logging.getLogger(__name__)

_NO_ID = "[request id: <id_unknown>] "
_SEED = 20_011
_HIGHEST = 100
"""Random integers stay below it, so that models can use them as indexes."""
_MOST_TOLD = 64
"""Requests whose refusal is told, of a sample's."""


@dataclass(frozen=True, slots=True)
class WarmupSample:
    """A batch of `size` equal requests, executed `count` times."""

    name: str
    request: InferenceRequest
    size: int
    count: int


def read_samples(config: ModelConfig, model_path: Path) -> list[WarmupSample]:
    """The warmup samples of a model, validated like client requests. Reads files.

    Samples of batch size 0 are skipped.
    """
    return list(_samples(config, model_path))


def _samples(config: ModelConfig, folder: Path) -> Iterator[WarmupSample]:
    admission, to_model = Admission(config), request_reshape(config)
    for warmup in config.model_warmup:
        if not warmup.batch_size:
            logger.debug("Skipping batch 0 warmup sample '%s'", warmup.name)
            continue
        logger.debug("Generating warmup sample data for '%s'", warmup.name)
        tensors = {name: _tensor(config, name, warmup, folder) for name in warmup.inputs}
        given = {name: tensors[name] for name in tensors if name in config.inputs_by_name}
        request = InferenceRequest(config.name, inputs=given)
        admission.check(request)
        if to_model is not None:
            request = to_model(request)
        # The rest are inputs that schedulers add, such as control tensors.
        request = request._replace(inputs={**tensors, **request.inputs})
        _refuse_too_large(config, warmup)
        yield WarmupSample(warmup.name, request, warmup.batch_size, max(1, warmup.count))


def _refuse_too_large(config: ModelConfig, warmup: Warmup) -> None:
    """Refuse a batch that no instance takes, in the words of the first one, for each request."""
    size, most = warmup.batch_size, max(1, config.max_batch_size)
    if size > most:
        refusal = f"batch size {size} for '{_first_instance(config)}', max allowed is {most}; "
        told = refusal * min(size, _MOST_TOLD)
        raise ModelLoadError(f"failed to run warmup sample '{warmup.name}': {told}")


def _first_instance(config: ModelConfig) -> str:
    group = next(iter(config.instance_group), None)
    if group is None:
        return f"{config.name}_0"
    return group.instance_name(0, next(iter(group.gpus), 0))


def _tensor(config: ModelConfig, name: str, warmup: Warmup, folder: Path) -> Tensor:
    wanted = warmup.inputs[name]
    if any(dim < 0 for dim in wanted.dims):
        raise ModelLoadError(
            f"warmup setting expects all variable-size dimensions are specified for input '{name}'"
        )
    shape = (1, *wanted.dims) if config.max_batch_size else wanted.dims
    datatype = wanted.data_type or DataType.INVALID
    if wanted.input_data_file is not None:
        return Tensor(datatype, shape, _file(folder, wanted.input_data_file, datatype, shape))
    if wanted.random_data is not None:
        return _random(datatype, shape)
    if wanted.zero_data is not None:
        return Tensor(datatype, shape, bytes(prod(shape) * (datatype.itemsize or 4)))
    raise ModelLoadError(
        f"{_NO_ID}warmup setting expects input '{name}' to have input_data_type set"
    )


def _file(folder: Path, name: str, datatype: DataType, shape: tuple[int, ...]) -> bytes:
    """The bytes of a tensor from a file, which may be longer; strings take the whole file."""
    content = read_named(folder, f"{WARMUP}/{name}")
    if datatype is DataType.BYTES:
        return content
    size = prod(shape) * datatype.itemsize
    if len(content) < size:
        raise ModelLoadError(
            f"{_NO_ID}warmup setting expects {size} bytes, but the data provided from "
            f"{Path(name).name}only has {len(content)} bytes"
        )
    return content[:size]


def _random(datatype: DataType, shape: tuple[int, ...]) -> Tensor:
    """Floats in [0, 1), integers in [0, 100), empty strings.

    The seed is fixed, so that failures are reproducible.
    """
    generator = np.random.default_rng(_SEED)
    if datatype in (DataType.BYTES, DataType.INVALID):
        return Tensor(datatype, shape, bytes(prod(shape) * 4))
    if datatype is DataType.BF16:
        bits = generator.random(shape, np.float32).view(np.uint32) >> 16
        return Tensor.from_numpy(bits.astype(np.uint16), DataType.BF16)
    dtype = datatype.numpy
    if dtype.kind == "f":
        return Tensor.from_numpy(generator.random(shape).astype(dtype))
    return Tensor.from_numpy(generator.integers(_HIGHEST, size=shape).astype(dtype))


# -- running -----------------------------------------------------------------------------------


async def warm_up(
    instance: ModelInstance,
    samples: Iterable[WarmupSample],
    statistics: Statistics,
) -> None:
    """Execute every sample on the instance, counted like client requests; raises
    `ModelLoadError` when one fails (I-20).
    """
    for sample in samples:
        for turn in range(1, sample.count + 1):
            logger.debug(
                "model '%s' instance %s is running warmup sample '%s' for iteration %s",
                sample.request.model_name,
                instance.name,
                sample.name,
                turn,
            )
            failures = await _failures(instance, sample, statistics)
            if failures:
                reasons = "".join(f"{failure}; " for failure in failures)
                raise ModelLoadError(f"failed to run warmup sample '{sample.name}': {reasons}")


async def _failures(
    instance: ModelInstance, sample: WarmupSample, statistics: Statistics
) -> Sequence[str]:
    await _wait_available(instance)
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


async def _wait_available(instance: ModelInstance) -> None:
    """Wait until the instance is available: the rate limiter may make it wait for resources."""
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
    """The error of a request after its last response; empty on success."""
    text = ""
    try:
        async for response in inference.stream:
            if response.error is not None:
                text = response.error.message
    except InferenceError as error:
        text = error.message
    return text
