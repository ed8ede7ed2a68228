"""Tensors in the GPU's memory of a client, by the module of a stock client for it."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
from tritonclient.utils import InferenceServerException

from gpu.machine import on_gpu
from gpu.serving import PATIENCE, GpuServer


def _without_bindings() -> str:
    try:
        found = find_spec("cuda.bindings.runtime")
    except ModuleNotFoundError:
        found = None
    return "" if found else "needs CUDA's bindings for Python: pip install cuda-bindings"


pytestmark = [*on_gpu(), pytest.mark.needs("cuda-bindings", _without_bindings())]


@contextmanager
def memory(name: str, size: int) -> Iterator[tuple[Any, bytes]]:
    """Memory of this process on the GPU, and its handle in Base64."""
    import tritonclient.utils.cuda_shared_memory as cuda

    allocated = cuda.create_shared_memory_region(name, size, 0)
    try:
        yield allocated, cuda.get_raw_handle(allocated)
    finally:
        cuda.destroy_shared_memory_region(allocated)


def test_inputs_and_outputs_are_in_memory_of_the_client(server: GpuServer) -> None:
    """Written to the GPU by a client, read from it by the client; nothing goes over the wire."""
    import tritonclient.utils.cuda_shared_memory as cuda

    server.load("script")
    x, y = server.expected()
    with memory("x", x.nbytes) as (of_x, key_x), memory("y", y.nbytes) as (of_y, key_y):
        cuda.set_shared_memory_region(of_x, [x])
        server.client.register_cuda_shared_memory("x", key_x, 0, x.nbytes)
        server.client.register_cuda_shared_memory("y", key_y, 0, y.nbytes)
        tensor = grpcclient.InferInput("INPUT__0", list(x.shape), "FP32")
        tensor.set_shared_memory("x", x.nbytes)
        output = grpcclient.InferRequestedOutput("OUTPUT__0")
        output.set_shared_memory("y", y.nbytes)
        server.client.infer("script", [tensor], outputs=[output], client_timeout=PATIENCE)
        found = cuda.get_contents_as_numpy(of_y, np.float32, list(y.shape))
        server.client.unregister_cuda_shared_memory()
    np.testing.assert_allclose(found, y, atol=1e-4)
    assert list(server.client.get_cuda_shared_memory_status().regions) == []


def test_region_is_registered_over_http(server: GpuServer) -> None:
    with memory("h", 4096) as (_, key):
        body = {"raw_handle": {"b64": key.decode()}, "device_id": 0, "byte_size": 4096}
        server.post("v2/cudasharedmemory/region/h/register", body)
        found = server.client.get_cuda_shared_memory_status().regions["h"]
        size = int(found.byte_size)
        server.post("v2/cudasharedmemory/region/h/unregister", {})
    assert size == 4096
    assert "h" not in server.client.get_cuda_shared_memory_status().regions


def test_region_beyond_the_memory_is_refused(server: GpuServer) -> None:
    with (
        memory("b", 4096) as (_, key),
        pytest.raises(InferenceServerException, match="invalid args"),
    ):
        server.client.register_cuda_shared_memory("b", key, 0, 1 << 30)
    assert "b" not in server.client.get_cuda_shared_memory_status().regions


def test_handle_of_nothing_is_refused_and_the_next_one_is_not(server: GpuServer) -> None:
    nothing = base64.b64encode(bytes(64))
    with pytest.raises(InferenceServerException, match="invalid args"):
        server.client.register_cuda_shared_memory("n", nothing, 0, 4096)
    with memory("n", 4096) as (_, key):
        server.client.register_cuda_shared_memory("n", key, 0, 4096)
        assert "n" in server.client.get_cuda_shared_memory_status().regions
        server.client.unregister_cuda_shared_memory("n")
