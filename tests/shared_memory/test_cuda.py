"""Memory of GPUs: what is asked of CUDA, checked against its real package where there is one."""

from __future__ import annotations

import ctypes
import logging
from typing import Any, cast

import pytest

from fakes.cuda import HANDLE, OWN_HANDLE, FakeCuda
from penstock.core.errors import InternalError, InvalidRequestError
from penstock.shared_memory.cuda import HANDLE_SIZE, CudaMemory, CudaRegion, open_cuda_region
from penstock.shared_memory.registry import Regions


def opened(cuda: FakeCuda, byte_size: int = 64, device: int = 1) -> CudaRegion:
    return open_cuda_region(1, "c", HANDLE, device, byte_size, cast(Any, lambda: cuda))


@pytest.mark.contract("X-11")
def test_slices_are_copied_from_and_to_the_device() -> None:
    cuda = FakeCuda()
    region = opened(cuda)
    region.slice(8, 4).write(b"abcd")
    assert cuda.memory[8:12] == b"abcd"
    assert bytes(region.slice(9, 2).read()) == b"bc"


@pytest.mark.contract("G-18", "X-11")
@pytest.mark.parametrize(("handle", "device"), [(HANDLE, 0), (bytes(64), 1), (b"short", 1)])
def test_handle_that_cannot_be_opened_is_refused(handle: bytes, device: int) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        open_cuda_region(1, "c", handle, device, 64, cast(Any, FakeCuda))
    assert refused.value.message == "failed to register shared memory region: invalid args"


@pytest.mark.contract("X-11")
def test_a_process_cannot_open_a_handle_of_its_own(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(InvalidRequestError, match="invalid args"):
        open_cuda_region(1, "c", OWN_HANDLE, 1, 64, cast(Any, FakeCuda))
    assert "failed to open CUDA IPC handle: invalid device context" in caplog.text


@pytest.mark.parametrize("byte_size", [0, 65, 1 << 63])
def test_size_must_be_that_of_the_allocation_or_less(byte_size: int) -> None:
    cuda = FakeCuda()
    with pytest.raises(InvalidRequestError, match="region 'c': invalid args"):
        opened(cuda, byte_size)
    assert cuda.opened == []


@pytest.mark.contract("G-19")
def test_closing_closes_the_handle(caplog: pytest.LogCaptureFixture) -> None:
    cuda = FakeCuda()
    opened(cuda).close()
    assert cuda.opened == []
    region, cuda.broken = opened(cuda), True
    region.close()
    assert "failed to close CUDA IPC handle: driver shutting down" in caplog.text


def test_failing_copies_are_errors_of_their_request() -> None:
    cuda = FakeCuda()
    place, cuda.broken = opened(cuda).slice(0, 8), True
    with pytest.raises(InternalError, match="failed to read from CUDA shared memory region 'c'"):
        place.read()
    with pytest.raises(InternalError, match="failed to write to CUDA shared memory region 'c'"):
        place.write(b"x")


def test_region_is_in_use_while_a_slice_is() -> None:
    region, idle = opened(FakeCuda()), []
    region.uses.on_idle = lambda: idle.append(1)
    place = region.slice(0, 8)
    assert region.uses
    del place
    assert (bool(region.uses), idle) == (False, [1])


# -- the real package ------------------------------------------------------------------------------


def runtime() -> Any:
    return pytest.importorskip("cuda.bindings.runtime", reason="cuda-bindings is not installed")


@pytest.mark.contract("X-11")
def test_real_package_has_what_is_called() -> None:
    cuda = runtime()
    handle = cuda.cudaIpcMemHandle_t()
    ctypes.memmove(int(handle.getPtr()), HANDLE, HANDLE_SIZE)
    assert ctypes.string_at(int(handle.getPtr()), HANDLE_SIZE) == HANDLE
    assert cuda.cudaGetErrorString(cuda.cudaError_t.cudaErrorInvalidValue)[1] == b"invalid argument"
    assert hasattr(cuda.cudaMemcpyKind, "cudaMemcpyDeviceToHost")
    assert hasattr(cuda.cudaMemcpyKind, "cudaMemcpyHostToDevice")


def test_real_package_refuses_a_handle_of_nobody(caplog: pytest.LogCaptureFixture) -> None:
    """Whether there is a GPU or not, the client is told the same, and the log says why."""
    runtime()
    with caplog.at_level(logging.ERROR), pytest.raises(InvalidRequestError, match="invalid args"):
        Regions(allowed=True).register_cuda("c", bytes(HANDLE_SIZE), 0, 64)
    assert "failed to open CUDA IPC handle: " in caplog.text


def test_memory_of_a_gpu_in_another_process_is_shared() -> None:
    """The one test that needs a GPU: another process exports memory, and both see it."""
    cuda = runtime()
    status, count = cuda.cudaGetDeviceCount()
    if int(status) or not count:
        pytest.skip(f"no GPU: {status.name}")
    from shared_memory.gpu_owner import gpu_memory

    with gpu_memory(b"abcdefgh") as owner:
        region = open_cuda_region(1, "c", owner.handle, 0, 8, CudaMemory)
        assert bytes(region.slice(2, 3).read()) == b"cde"
        region.slice(0, 2).write(b"XY")
        assert owner.read() == b"XYcdefgh"
        region.close()
