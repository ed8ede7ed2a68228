"""Tensors from model to model: through calls, ensembles and the link, and kept on the GPU."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc as grpcclient

from gpu.machine import on_gpu
from gpu.serving import FLAGS, GpuServer
from harness.serving import serving

pytestmark = on_gpu()
_TESTS = Path(__file__).parents[1]


@pytest.mark.parametrize("called", ["twice", "twice_bf16"])
def test_tensor_of_a_gpu_is_handed_to_another_model(server: GpuServer, called: str) -> None:
    """A model in Python calls one on the GPU with a CUDA tensor, by DLPack both ways."""
    server.load(called, f"calls_{called}")
    x = np.arange(24, dtype=np.float32).reshape(2, 12)  # numbers that BF16 has
    assert server.answer(f"calls_{called}", x).tolist() == (2 * x + 1).tolist()


@pytest.mark.parametrize("elements", [16, 1 << 20])
def test_ensemble_of_processes_on_a_gpu_answers(server: GpuServer, elements: int) -> None:
    """Sent as a message between the processes, and left in shared memory."""
    server.load("twice", "plus_one", "chain")
    x = np.arange(2 * elements, dtype=np.float32).reshape(2, elements)
    np.testing.assert_array_equal(server.answer("chain", x), 2 * x + 1)


def test_batches_of_pytorch_on_threads_stay_on_the_gpu(server: GpuServer) -> None:
    """Each request has its own rows of what was joined there, and there only."""
    server.load("twice_on_a_thread", "plusone_on_a_thread", "chain_on_threads")
    xs = [np.full((1 + n % 3, 8), n, np.float32) for n in range(64)]
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda x: server.answer("chain_on_threads", x), xs))
    for x, answer in zip(xs, answers, strict=True):
        np.testing.assert_array_equal(answer, 2 * x + 1)
    rows, batches = server.executions("plusone_on_a_thread")
    assert rows > batches


@pytest.fixture
def with_backend(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[GpuServer]:
    """A server that finds the backend `on_the_device`, as one of a package beside it."""
    info = tmp_path / "site" / "on_the_device-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: on_the_device\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[penstock.backends]\non_the_device = gpu.on_the_device:OnTheDeviceBackend\n"
    )
    given = [path for path in [os.environ.get("PYTHONPATH")] if path]
    paths = [str(info.parent), str(_TESTS), *given]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    with (
        serving(repository, tmp_path / "log", *FLAGS) as served,
        grpcclient.InferenceServerClient(served.grpc) as client,
    ):
        yield GpuServer(served, repository, client)


def test_tensor_between_steps_stays_on_the_gpu(with_backend: GpuServer) -> None:
    """Of a backend on threads that says it takes such tensors; the first step's input is not."""
    with_backend.load("first", "second", "chain_on_device")
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    alone = with_backend.ask("first", x)
    assert alone.as_numpy("WAS_THERE").ravel().tolist() == [False] * 3
    chained = with_backend.ask("chain_on_device", x)
    assert chained.as_numpy("OUTPUT__0").tolist() == (x + 2).tolist()
    assert chained.as_numpy("WAS_THERE").ravel().tolist() == [True] * 3
