"""Batching on a GPU: what it does to the number of runs, and how fast both ways are (S059)."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from gpu.machine import on_gpu
from gpu.serving import Array, GpuServer

pytestmark = on_gpu()
_IN_FLIGHT = 64
_SECONDS = 10.0
_ROWS = np.linspace(-2, 2, _IN_FLIGHT * 256, dtype=np.float32).reshape(_IN_FLIGHT, 256)


def rate(server: GpuServer, model: str, expected: Array) -> float:
    """Answers per second to one client with `_IN_FLIGHT` requests, all of them right."""
    begin = time.perf_counter()

    def ask(row: int) -> int:
        answers, only = 0, slice(row, row + 1)
        while time.perf_counter() - begin < _SECONDS:
            found = server.answer(model, _ROWS[only])
            np.testing.assert_allclose(found, expected[only], atol=1e-3)
            answers += 1
        return answers

    with ThreadPoolExecutor(_IN_FLIGHT) as pool:
        answers = sum(pool.map(ask, range(_IN_FLIGHT)))
    return answers / (time.perf_counter() - begin)


def test_batching_makes_fewer_runs(
    server: GpuServer, record_property: Callable[[str, object], None]
) -> None:
    """96 layers, one row a request, 64 requests in flight from one client, both ways."""
    server.load("alone", "batched")
    expected = server.answer("alone", _ROWS)
    sizes: dict[str, float] = {}
    for model in ("alone", "batched"):
        rate(server, model, expected)  # kernels are compiled and chosen for each size of a batch
        rows, runs = server.executions(model)
        record_property(f"{model}, answers/s", f"{rate(server, model, expected):.0f}")
        all_rows, all_runs = server.executions(model)
        sizes[model] = (all_rows - rows) / (all_runs - runs)
        record_property(f"{model}, rows a run", f"{sizes[model]:.1f}")
    assert sizes["alone"] == 1
    assert sizes["batched"] > 2
