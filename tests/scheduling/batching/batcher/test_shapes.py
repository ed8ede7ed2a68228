"""Order and lengths of requests, and those that cannot be batched."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from fakes import FakeInstance, in_virtual_time, make_inference, marks, turns
from penstock.core.request import InferenceRequest
from penstock.core.tensor import Tensor
from penstock.inflight.inference import Inference
from penstock.scheduling.batching.batch_queue import BatchPolicy
from penstock.scheduling.batching.dynamic_batcher import BatcherSettings, DynamicBatcher, signature
from scheduling.batching.batcher.scheduled import EAGER, scheduled

# -- order and lengths ----------------------------------------------------------------------------


@pytest.mark.contract("D-08")
@in_virtual_time
async def test_responses_keep_their_order_though_another_instance_is_faster() -> None:
    instances = FakeInstance("slow", seconds=5.0), FakeInstance("fast", seconds=1.0)
    settings = BatcherSettings(BatchPolicy(1), preserve_ordering=True)
    batcher, seen = DynamicBatcher(settings, instances), []
    inferences = scheduled(batcher, "abc")

    async def read(inference: Inference) -> None:
        seen.extend(await marks(inference.stream))

    await asyncio.gather(*map(read, reversed(inferences)))
    assert seen == ["a", "b", "c"]
    assert instances[1].batches == [["b"], ["c"]]


async def test_a_budget_of_elements_counts_the_shapes_of_requests() -> None:
    instance = FakeInstance()
    settings = BatcherSettings(
        BatchPolicy(8, max_elements=6),
        signature=lambda request: None,
    )
    batcher = DynamicBatcher(settings, [instance])
    for id, width in (("a", 1), ("b", 3), ("c", 1)):
        batcher.schedule(make_inference(id, width=width))
    await turns(10)
    assert instance.batches == [["a", "b"], ["c"]]


async def test_requests_of_one_bucket_are_batched_past_others() -> None:
    instance = FakeInstance()
    settings = BatcherSettings(BatchPolicy(8, buckets=(2,)), signature=lambda request: None)
    batcher = DynamicBatcher(settings, [instance])
    for id, width in (("a", 1), ("b", 9), ("c", 2), ("d", 3)):
        batcher.schedule(make_inference(id, width=width))
    await turns(10)
    assert instance.batches == [["a", "c"], ["b", "d"]]


# -- signatures -----------------------------------------------------------------------------------


def _shaped(*shapes: tuple[int, ...]) -> InferenceRequest:
    inputs = {f"IN{n}": Tensor.from_numpy(np.zeros(shape)) for n, shape in enumerate(shapes)}
    return InferenceRequest("m", inputs=inputs)


def test_requests_of_any_number_of_rows_can_be_batched() -> None:
    assert signature(_shaped((1, 3), (1,))) == signature(_shaped((5, 3), (5,)))


@pytest.mark.parametrize("shapes", [[(1, 4)], [(1, 3, 1)], [(1, 3), (1,)], []])
def test_requests_of_other_shapes_or_inputs_cannot(shapes: list[tuple[int, ...]]) -> None:
    assert signature(_shaped((1, 3))) != signature(_shaped(*shapes))


def test_the_order_of_inputs_does_not_matter() -> None:
    request = _shaped((1, 3), (1, 4))
    turned = InferenceRequest("m", inputs=dict(reversed(list(request.inputs.items()))))
    assert signature(request) == signature(turned)


async def test_requests_of_another_width_are_not_batched() -> None:
    instance = FakeInstance()
    batcher = DynamicBatcher(EAGER, [instance])
    for id, width in (("a", 1), ("b", 1), ("c", 2)):
        batcher.schedule(make_inference(id, width=width))
    await turns(10)
    assert instance.batches == [["a", "b"], ["c"]]


async def test_requests_count_with_their_rows() -> None:
    instance = FakeInstance()
    batcher = DynamicBatcher(EAGER, [instance])
    for id, rows in (("a", 3), ("b", 1), ("c", 2)):
        batcher.schedule(make_inference(id, rows))
    await turns(10)
    assert instance.batches == [["a", "b"], ["c"]]
