"""Where threads run and their memory comes from."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from penstock.core.errors import ConfigError, ModelLoadError
from penstock.core.placement import Placement

pytestmark = pytest.mark.contract("I-08", "CL-45")


def _on_a_thread(work: Callable[[], Any]) -> Any:
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(work).result()


@pytest.mark.parametrize(
    ("settings", "placement"),
    [
        ({}, Placement()),
        ({"cpu-cores": "2-5"}, Placement((2, 5))),
        ({"numa-node": "1"}, Placement(None, 1)),
        ({"cpu-cores": "0-0", "numa-node": "0"}, Placement((0, 0), 0)),
    ],
)
def test_a_policy_sets_cores_and_node(settings: Mapping[str, str], placement: Placement) -> None:
    assert Placement.from_settings("p", settings) == placement


@pytest.mark.parametrize(
    "settings",
    [{"cpu-cores": text} for text in ("", "3", "5-2", "a-b", "1-2,4", "-1-2")]
    + [{"numa-node": text} for text in ("", "x", "-1", "1024")],
)
def test_what_is_no_policy_is_refused_by_name(settings: Mapping[str, str]) -> None:
    with pytest.raises(ConfigError, match="host policy 'p': "):
        Placement.from_settings("p", settings)


def test_a_thread_and_those_it_starts_stay_on_the_cores() -> None:
    core = max(os.sched_getaffinity(0))

    def work() -> list[set[int]]:
        Placement((core, core)).apply()
        seen = [os.sched_getaffinity(0)]
        child = threading.Thread(target=lambda: seen.append(os.sched_getaffinity(0)))
        child.start()
        child.join()
        return seen

    before = os.sched_getaffinity(0)
    assert _on_a_thread(work) == [{core}, {core}]
    assert os.sched_getaffinity(0) == before


def test_cores_that_are_not_there_are_refused() -> None:
    with pytest.raises(ModelLoadError, match="Unable to set NUMA thread affinity: cores 900-901"):
        _on_a_thread(Placement((900, 901)).apply)


def test_memory_comes_from_the_node() -> None:
    """As the kernel tells it."""

    def work() -> str:
        Placement(None, 0).apply()
        maps = Path(f"/proc/self/task/{threading.get_native_id()}/numa_maps")
        return maps.read_text() if maps.exists() else "bind:0"

    try:
        told = _on_a_thread(work)
    except ModelLoadError as refused:
        pytest.skip(f"this machine does not let us: {refused.message}")
    assert "bind:0" in told


def test_a_node_that_is_not_there_is_refused() -> None:
    with pytest.raises(ModelLoadError, match="Unable to set NUMA memory policy"):
        _on_a_thread(Placement(None, 900).apply)
