"""Questions that were asked one after the other, each of which depends on those before it.

Answers that repeat others were not kept in the recordings, so their questions are put in again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from conformance.golden import Case, Peer

_TENSOR = {"data_type": "TYPE_FP32", "dims": [-1]}
_TWO_INSTANCES = {
    "backend": "python",
    "input": [{"name": "INPUT0", **_TENSOR}],
    "output": [{"name": "OUTPUT0", **_TENSOR}],
    "instance_group": [{"kind": "KIND_CPU", "count": 2}],
}
_SETTINGS = ("trace_level", "trace_rate", "trace_count", "log_frequency")

_BEFORE: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "infer ensemble after unloading a part": (
        "RepositoryModelUnload",
        {"model_name": "identity_fp32_i2"},
    ),
    "config after override": (
        "RepositoryModelLoad",
        {
            "model_name": "identity_fp32",
            "parameters": {"config": {"string_param": json.dumps(_TWO_INSTANCES)}},
        },
    ),
    "http unload bad parameter": ("RepositoryModelLoad", {"model_name": "simple"}),
    "unload slow while running": ("RepositoryModelLoad", {"model_name": "slow"}),
    "http trace get": ("TraceSetting", {"settings": {key: {} for key in _SETTINGS}}),
    "http trace get model": (
        "TraceSetting",
        {"model_name": "simple", "settings": {key: {} for key in _SETTINGS}},
    ),
}
"""By the case before which they were asked."""

_MEANWHILE = {"unload slow while running": "slow request across unload"}
"""Cases that begin before another one, and end in their own place."""

_PATIENCE = 20.0


def row_differences(peer: Peer, cases: Iterable[Case]) -> Iterator[tuple[str, str]]:
    """The cases that differ, by name, each with how it does."""
    by_name = {case.name: case for case in cases}
    begun: dict[str, Future[str | None]] = {}
    with ThreadPoolExecutor(1) as background:
        for name, case in by_name.items():
            if name in _BEFORE:
                _ask(peer, *_BEFORE[name])
            if later := _MEANWHILE.get(name):
                begun[later] = background.submit(peer.difference, by_name[later])
                time.sleep(0.3)  # nothing tells that the model has begun with it
            found = begun[name].result(30) if name in begun else _settled(peer, case)
            if found is not None:
                yield name, found


def _ask(peer: Peer, rpc: str, request: Mapping[str, Any]) -> None:
    peer.difference(Case("", "", {"rpc": rpc, "request": request, "code": "OK"}))


def _settled(peer: Peer, case: Case) -> str | None:
    """The difference once what is being unloaded is gone, which an index may come too early for."""
    end = time.monotonic() + _PATIENCE
    found = peer.difference(case)
    while found is not None and "index" in case.name and time.monotonic() < end:
        time.sleep(0.05)
        found = peer.difference(case)
    return found
