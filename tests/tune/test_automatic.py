"""The search where nothing is asked for: which settings, and from where to where."""

from __future__ import annotations

import os

import pytest

from penstock_client.tune.automatic import automatic_values
from penstock_client.tune.reading import read_plans

_BATCHED = {"backend": "onnxruntime", "max_batch_size": 8}


@pytest.mark.contract("MA-04")
@pytest.mark.parametrize(("cores", "most"), [(1, 2), (3, 3), (64, 5)])
def test_instances_are_as_many_as_cores_but_two_to_five(
    monkeypatch: pytest.MonkeyPatch, cores: int, most: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))
    assert automatic_values(_BATCHED, {})["instances"] == tuple(range(1, most + 1))


@pytest.mark.contract("MA-04")
def test_batch_sizes_are_powers_of_two_to_128_and_delays_those_of_a_batcher() -> None:
    values = automatic_values(_BATCHED, {})
    assert values["max_batch_size"] == (1, 2, 4, 8, 16, 32, 64, 128)
    assert values["queue_delay"] == (0, 100, 500, 2000)
    assert set(automatic_values({"backend": "python"}, {})) == {"instances"}


@pytest.mark.contract("MA-04")
def test_loads_are_powers_of_two_to_256() -> None:
    (plan,) = read_plans(["encoder", "--model-repository", "/models"])
    assert [each.point.concurrency for each in plan.loads.all] == [1 << n for n in range(9)]
    assert plan.loads.sweep
