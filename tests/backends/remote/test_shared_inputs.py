"""Large inputs in memory that a server on this host has as well: a second Penstock."""

from __future__ import annotations

import asyncio
import glob
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from backends.remote.far_server import entry, far_server
from fakes import until
from harness.serving import Served
from penstock.core.errors import ConfigError
from penstock.core.tensor import DataType, Tensor
from penstock.protocol import grpc_service_pb2 as pb
from penstock.protocol.grpc_service_pb2_grpc import GRPCInferenceServiceStub
from penstock.testing import RunningInstance, running
from penstock_backends.remote import RemoteBackend
from penstock_backends.remote.shared_inputs import Region

SIZE = str(4 << 20)


@pytest.fixture(scope="module")
def far(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with far_server(tmp_path_factory.mktemp("far"), "--allow-client-shm=true") as served:
        yield served


def remote(far: Served, name: str, tmp_path: Path, **parameters: str) -> Any:
    given = {"shared_memory_bytes": SIZE, **parameters}
    return running(RemoteBackend, entry(name, f"grpc://{far.grpc}", **given), tmp_path)


def regions(far: Served) -> list[str]:
    """Names of the regions that the far server has."""
    with grpc.insecure_channel(far.grpc) as channel:
        stub = GRPCInferenceServiceStub(channel)
        status = stub.SystemSharedMemoryStatus(pb.SystemSharedMemoryStatusRequest())
        return [*status.regions]


def left_here() -> list[str]:
    """Files of regions that this process left; other processes have their own."""
    return glob.glob(f"/dev/shm/penstock-remote-{os.getpid()}-*")


def forget_all(far: Served) -> None:
    """As other clients do, for whom the whole server is theirs."""
    with grpc.insecure_channel(far.grpc) as channel:
        stub = GRPCInferenceServiceStub(channel)
        stub.SystemSharedMemoryUnregister(pb.SystemSharedMemoryUnregisterRequest())


async def echo(instance: RunningInstance, number: float, columns: int = 1 << 18) -> None:
    given = np.full((1, columns), number, np.float32)
    [response] = [one async for one in instance.infer({"IN": given})]
    assert np.array_equal(response.outputs["OUT"].numpy(), given)


async def test_large_inputs_come_as_they_went(far: Served, tmp_path: Path) -> None:
    async with remote(far, "echo", tmp_path) as instance:
        [name] = regions(far)
        assert str(os.getpid()) in name  # what is left over tells whose it was
        assert not glob.glob(f"/dev/shm/{name}*")  # nobody has to clean up
        shared = instance.backend._model.shared
        [(region, _)] = shared._regions.values()
        await asyncio.gather(*[echo(instance, number) for number in range(12)])  # more than fit
        await echo(instance, 7.0, columns=8)
        assert region._free == [(0, int(SIZE))]
    assert name not in regions(far)  # it would keep the memory


async def test_a_stream_whose_region_was_unregistered_goes_by_bytes(
    far: Served, tmp_path: Path
) -> None:
    count = 1 << 14
    given = {
        "IN": np.arange(count, dtype=np.int32),
        "DELAY": np.zeros(count, np.uint32),
        "WAIT": np.zeros(1, np.uint32),
    }
    async with remote(far, "repeat", tmp_path, health_interval_ms="60000") as instance:
        forget_all(far)
        responses = [one async for one in instance.infer(given)]
    assert len([one for one in responses if one.outputs]) == count


async def test_what_a_cancelled_call_was_lent_is_not_used_at_once(
    far: Served, tmp_path: Path
) -> None:
    """The server may read it yet."""
    async with remote(far, "slow", tmp_path) as instance:
        [(region, _)] = instance.backend._model.shared._regions.values()
        given = np.ones((1, 1 << 15), np.float32)
        answering = asyncio.ensure_future(anext(instance.infer({"IN": given})))
        await until(lambda: region._free != [(0, int(SIZE))])
        answering.cancel()
        await asyncio.wait([answering])
        assert region._free != [(0, int(SIZE))]


async def test_a_region_that_was_unregistered_costs_no_call(far: Served, tmp_path: Path) -> None:
    async with remote(far, "echo", tmp_path, health_interval_ms="60000") as instance:
        shared = instance.backend._model.shared
        [(region, _)] = shared._regions.values()
        forget_all(far)
        await asyncio.gather(*[echo(instance, number) for number in range(4)])
        assert region not in [one for one, _ in shared._regions.values()]


async def test_a_region_is_registered_again(far: Served, tmp_path: Path) -> None:
    async with remote(far, "echo", tmp_path, health_interval_ms="50") as instance:
        forget_all(far)
        await echo(instance, 1.0)
        async with asyncio.timeout(20):
            while not await asyncio.to_thread(regions, far):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        await echo(instance, 2.0)


async def test_a_server_that_takes_no_memory_gets_bytes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with far_server(tmp_path) as closed:
        async with remote(closed, "echo", tmp_path / "near", health_interval_ms="50") as instance:
            await echo(instance, 1.0)
            model = instance.backend._model
            for endpoint in model.fleet.endpoints * 3:
                await model.probe(endpoint)
    [told] = [one for one in caplog.messages if "takes no shared memory" in one]
    assert "--allow-client-shm=true" in told
    assert not left_here()


async def test_no_region_is_left_by_a_look_at_the_end(far: Served, tmp_path: Path) -> None:
    """A look at an address that goes on while the model ends offers no other region."""
    async with remote(far, "echo", tmp_path, health_interval_ms="60000") as instance:
        model = instance.backend._model
        [endpoint] = model.fleet.endpoints
        await asyncio.gather(model.shared.close(), model.probe(endpoint))
    assert not regions(far)
    assert not left_here()


@pytest.mark.parametrize("steps", range(4))
async def test_no_region_is_left_by_a_look_that_is_cancelled(
    far: Served, tmp_path: Path, steps: int
) -> None:
    async with remote(far, "echo", tmp_path, health_interval_ms="60000") as instance:
        shared = instance.backend._model.shared
        [endpoint] = instance.backend._model.fleet.endpoints
        forget_all(far)
        shared._left[endpoint] = "of a connection before"
        shared._regions.clear()
        offering = asyncio.ensure_future(shared.offer(endpoint))
        for _ in range(steps):
            await asyncio.sleep(0)
        offering.cancel()
        await asyncio.wait([offering])
    assert not regions(far)
    assert not left_here()


def test_places_are_given_back_whole() -> None:
    region = Region(1 << 20)
    region.unlink()
    tensor = Tensor.from_numpy(np.ones(70_001, np.uint8), DataType.UINT8)
    lent = [region.lend({"A": tensor, "B": tensor}) for _ in range(6)]
    assert all(one is not None and len(one.places) == 2 for one in lent)
    places = [at for one in lent if one is not None for at, _ in one.places.values()]
    assert len(set(places)) == 12
    while (more := region.lend({"A": tensor})) is not None:
        lent.append(more)
    for one in lent[::2] + lent[1::2]:
        assert one is not None
        region.give_back(one)
    assert region._free == [(0, 1 << 20)]


async def test_memory_is_shared_by_one_protocol_only(tmp_path: Path) -> None:
    config = entry("m", "grpc://localhost:1", protocol="vllm", shared_memory_bytes=SIZE)
    with pytest.raises(ConfigError, match="'shared_memory_bytes' is for the protocol kserve"):
        async with running(RemoteBackend, config, tmp_path):
            pass
