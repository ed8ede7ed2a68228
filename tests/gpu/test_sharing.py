"""Models and instances that share one GPU, and what happens to the others when one fails."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from tritonclient.utils import InferenceServerException

from gpu.machine import on_gpu, used_mib
from gpu.serving import PATIENCE, Array, GpuServer
from harness.serving import alive, wait_until

Record = Callable[[str, object], None]

pytestmark = on_gpu()
_HELD_MIB = 1024
"""What the model `held` takes beside its context of CUDA."""
_NOISE_MIB = 256
"""By how much the use of a GPU differs between two times at which the same is loaded."""
_TOO_MUCH_MIB = 10_000_000


def one(value: float) -> Array:
    return np.full((1, 1), value, np.float32)


def process_of(server: GpuServer, model: str) -> int:
    """The process that has answered."""
    return int(server.answer(model, one(0))[0, 0])


def answers_anew(server: GpuServer, model: str, before: int) -> bool:
    """Whether another process than the one before answers."""
    try:
        return process_of(server, model) != before
    except InferenceServerException:  # it is being started
        return False


def test_two_models_and_two_instances_share_a_gpu(server: GpuServer) -> None:
    server.load("script", "pair")
    x, y = server.expected()
    with ThreadPoolExecutor(32) as pool:
        networks = [pool.submit(server.answer, "script", x) for _ in range(128)]
        pairs = [pool.submit(server.ask, "pair", one(0)) for _ in range(128)]
    for network in networks:
        np.testing.assert_allclose(network.result(), y, atol=1e-4)
    answers = [pair.result() for pair in pairs]
    processes = {int(answer.as_numpy("OUTPUT__0")[0, 0]) for answer in answers}
    assert len(processes) == 2
    assert processes <= set(server.served.family())
    assert {int(answer.as_numpy("OUTPUT__1")[0, 0]) for answer in answers} == {0}


@pytest.mark.parametrize("model", ["filling", "filling_in_python"])
def test_out_of_memory_is_an_error_that_harms_nobody_else(
    server: GpuServer, model: str, record_property: Record
) -> None:
    server.load("script", model)
    server.answer(model, one(1))
    x, y = server.expected()
    processes, before = set(server.served.family()), used_mib()
    with ThreadPoolExecutor(8) as pool:
        neighbours = [pool.submit(server.answer, "script", x) for _ in range(64)]
        with pytest.raises(InferenceServerException, match="out of memory") as refused:
            server.ask(model, one(_TOO_MUCH_MIB))
    for neighbour in neighbours:
        np.testing.assert_allclose(neighbour.result(), y, atol=1e-4)
    assert server.answer(model, one(1)) == 1
    assert set(server.served.family()) == processes
    assert used_mib() <= before + _NOISE_MIB
    record_property("says", str(refused.value.message())[:120])


def test_process_that_ran_out_of_memory_answers_again_each_time(server: GpuServer) -> None:
    server.load("filling_in_python")
    for _ in range(3):
        with pytest.raises(InferenceServerException, match="out of memory"):
            server.ask("filling_in_python", one(_TOO_MUCH_MIB))
        assert server.answer("filling_in_python", one(4096)) == 4096


def test_killed_process_gives_its_memory_back(server: GpuServer, record_property: Record) -> None:
    server.load("script")
    x, y = server.expected()
    server.answer("script", x)
    without = used_mib()
    server.load("held")
    process = process_of(server, "held")
    with_it = used_mib()
    assert with_it >= without + _HELD_MIB
    os.kill(process, signal.SIGKILL)
    wait_until(lambda: not alive(process))
    np.testing.assert_allclose(server.answer("script", x), y, atol=1e-4)
    wait_until(lambda: answers_anew(server, "held", process), PATIENCE)
    again = used_mib()
    assert again <= with_it + _NOISE_MIB  # or the memory of both would be taken
    server.unload("held")
    wait_until(lambda: used_mib() <= without + _NOISE_MIB)
    for name, value in (("before", without), ("loaded", with_it), ("started again", again)):
        record_property(name, f"{value} MiB")
    record_property("unloaded", f"{used_mib()} MiB")
