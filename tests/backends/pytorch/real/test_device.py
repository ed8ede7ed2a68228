"""PyTorch on threads of a server: tensors that stay on the device, and batches joined there."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from backends.pytorch.real.conftest import Opened
from penstock.backend import (
    Array,
    DataType,
    DeviceTensor,
    InferenceRequest,
    InferenceResponse,
    InternalError,
    ModelConfig,
    ModelLoadError,
    Parameter,
    Tensor,
)
from penstock.models.config.defaults import with_backend
from penstock.models.config.pbtxt import read_pbtxt
from penstock.testing import RunningInstance, running
from penstock_backends.pytorch import PyTorchBackend

A = np.array([[5, 6, 7, 8]], np.float32)
_THREAD = {"penstock.host": Parameter("thread")}


def config_of(repository: Path, name: str) -> ModelConfig:
    """The model's configuration, for instances on threads."""
    files = [file.name for file in (repository / name / "1").iterdir()]
    config = with_backend(read_pbtxt(repository / name / "config.pbtxt"), name, files)
    return replace(config, parameters={**config.parameters, **_THREAD})


@pytest.fixture
def on_threads(repository: Path) -> Callable[[str], Opened]:
    def opened(name: str) -> Opened:
        return running(PyTorchBackend, config_of(repository, name), repository / name / "1")

    return opened


def request(*, stay: tuple[str, ...] = (), **inputs: Array | Tensor) -> InferenceRequest:
    tensors = {
        name: each if isinstance(each, Tensor) else Tensor.from_numpy(each)
        for name, each in inputs.items()
    }
    return InferenceRequest("m", inputs=tensors, on_device=frozenset(stay))


async def answers(instance: RunningInstance, *requests: InferenceRequest) -> list[dict[str, Any]]:
    outcomes = await instance.backend.execute(requests)
    assert all(isinstance(outcome, InferenceResponse) for outcome in outcomes), outcomes
    return [outcome.outputs for outcome in outcomes]


def never() -> Array:
    raise AssertionError("copied to the host")


def theirs(array: Array, datatype: DataType = DataType.FP32) -> DeviceTensor:
    """As another engine has left it on the device."""
    return DeviceTensor(datatype, array.shape, torch.from_numpy(array), never)


async def test_a_batch_is_joined_and_left_on_the_device(
    on_threads: Callable[[str], Opened],
) -> None:
    b = np.ones((3, 4), np.float32)
    async with on_threads("by_name") as instance:
        first, second = await answers(
            instance,
            request(left=theirs(A.copy()), right=A, stay=("sum",)),
            request(left=theirs(np.tile(A, (3, 1))), right=theirs(b), stay=("sum",)),
        )
        assert first["difference"].device is None
        assert first["difference"].numpy().tolist() == [[0, 0, 0, 0]]
        left = second["sum"].device
        assert isinstance(left, torch.Tensor)
        assert left.data_ptr() == first["sum"].device.data_ptr() + A.nbytes  # rows of one result
        again = request(left=first["sum"], right=first["sum"], stay=("sum", "difference"))
        [third] = await answers(instance, again)
    assert first["sum"].numpy().tolist() == (2 * A).tolist()
    assert np.from_dlpack(left).tolist() == [[6, 7, 8, 9]] * 3
    assert third["sum"].numpy().tolist() == (4 * A).tolist()


async def test_exported_packages_and_bfloat16_stay_there_too(
    on_threads: Callable[[str], Opened],
) -> None:
    async with on_threads("exported") as instance:
        asked = request(left=theirs(A.copy()), right=A, stay=("RESULT[0]",))
        first, _ = await answers(instance, asked, asked)
        assert first["RESULT[0]"].device.tolist() == (2 * A).tolist()
    bits = torch.tensor([[1, -2, 0.5, 3]], dtype=torch.bfloat16)
    async with on_threads("bf16") as instance:
        left = DeviceTensor(DataType.BF16, (1, 4), bits, never)
        host = Tensor.from_numpy(bits.view(torch.uint16).numpy(), DataType.BF16)
        found = await answers(instance, request(x=left, stay=("y",)), request(x=host, stay=("y",)))
    for each in found:
        assert each["y"].device.tolist() == bits.tolist()
        assert each["y"].numpy().tolist() == bits.view(torch.uint16).numpy().tolist()


async def test_a_model_that_writes_to_its_input_changes_nobody_else_s(
    on_threads: Callable[[str], Opened],
) -> None:
    array, clients = A.copy(), Tensor(DataType.FP32, (1, 4), A.tobytes())
    async with on_threads("in_place") as instance:
        for requests in (
            [request(x=theirs(array))],
            [request(x=theirs(array)), request(x=clients)],
        ):
            for found in await answers(instance, *requests):
                assert found["y"].numpy().tolist() == (2 * A).tolist()
    assert array.tolist() == A.tolist()
    assert clients.numpy().tolist() == A.tolist()


async def test_errors_of_a_batch_on_the_device_are_said(
    on_threads: Callable[[str], Opened],
) -> None:
    async with on_threads("by_name") as instance:
        wrong = request(left=theirs(A.copy()), right=A[:, :3])
        for requests, why in (
            ([wrong], "execute failure"),
            ([wrong, request(left=A, right=A)], "rows of different"),
        ):
            outcomes = await instance.backend.execute(requests)
            assert [isinstance(each, InternalError) for each in outcomes] == [True] * len(requests)
            assert why in outcomes[0].message


async def test_instances_on_threads_share_a_module(repository: Path) -> None:
    """It counts its runs in a buffer, which only a copy of its own would begin anew."""
    config = config_of(repository, "wide_shared")
    x = np.zeros((1, 1024), np.float32)
    counted = []
    async with AsyncExitStack() as stack:
        for _ in range(2):
            instance = running(PyTorchBackend, config, repository / "wide_shared" / "1")
            opened = await stack.enter_async_context(instance)
            [found] = await answers(opened, request(x=x))
            counted.append(found["runs"].numpy().tolist())
    assert counted == [[[1]], [[2]]]


@pytest.mark.parametrize("model", ["in_python", "compiled", "pickled"])
async def test_what_would_hold_up_the_server_is_refused(
    on_threads: Callable[[str], Opened], model: str
) -> None:
    with pytest.raises(ModelLoadError, match="would hold up the server"):
        async with on_threads(model):
            pass
