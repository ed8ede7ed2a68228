"""Models that go for others, and what is called while they go."""

from __future__ import annotations

import asyncio
import json
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tritonclient.utils import InferenceServerException

from fakes import until
from harness.serving import wait_until
from models.residency.repository import CALLS, ONE, Repository
from models.residency.test_demand import Start, repository, start  # noqa: F401 - fixtures
from models.residency.test_in_process import answer, serving
from penstock.core.errors import InferenceError
from penstock.core.request import InferenceRequest
from penstock.core.stream import require_single
from penstock.core.tensor import Tensor
from penstock.server.server import InferenceServer

_HELD = """
        open(os.path.join(LOG, "began"), "w").close()
        while not os.path.exists(os.path.join(LOG, "go")):
            time.sleep(0.01)
"""
_ENDS_LATE = """
    def finalize(self):
        while not os.path.exists(os.path.join(LOG, "go")):
            time.sleep(0.01)
"""
_TENSORS = {
    "input": [{"name": "X", "data_type": "TYPE_FP32", "dims": [-1]}],
    "output": [{"name": "Y", "data_type": "TYPE_FP32", "dims": [-1]}],
}


async def _in_sequence(server: InferenceServer, model: str, **flags: Any) -> float:
    inputs = {"X": Tensor.from_numpy(np.array([0], np.float32))}
    request = InferenceRequest(model, inputs=inputs, correlation_id=7, **flags)
    response = require_single([one async for one in server.infer(request)])
    return float(response.outputs["Y"].numpy()[0])


def _add(file: Path, text: str) -> None:
    file.write_text(file.read_text() + text)


async def test_a_sequence_that_begins_while_another_model_goes_is_kept(
    repository: Repository,  # noqa: F811
) -> None:
    """Two models are to go, of which the first takes long to end."""
    for name in ("first", "second", "large"):
        repository.add(name, min_resident_seconds="0")
    repository.add_weights("large", ONE // 2)
    folder = repository.path / "second"
    _add(folder / "config.pbtxt", "sequence_batching { }\n")
    # It is worth more for sure, and goes behind the other one.
    _add(folder / "1" / "model.py", "\n    def initialize(self, args):\n        time.sleep(1)\n")
    _add(repository.path / "first" / "1" / "model.py", _ENDS_LATE)
    async with serving(repository, models=2.5) as server:
        residency = server.residency
        assert residency is not None
        assert await answer(server, "first") == 1
        assert await _in_sequence(server, "second", sequence_start=True, sequence_end=True) == 1
        large = asyncio.ensure_future(answer(server, "large"))
        await until(lambda: server.resident("first") is False)
        assert await _in_sequence(server, "second", sequence_start=True) == 1
        (repository.path.parent / "go").touch()
        await until(lambda: "first" not in residency.resident_bytes())
        assert await _in_sequence(server, "second") == 1
        assert await _in_sequence(server, "second", sequence_end=True) == 1
        assert await large == 1


def test_who_calls_while_it_goes_is_refused_and_the_next_one_comes(
    start: Start,  # noqa: F811
    repository: Repository,  # noqa: F811
) -> None:
    """A model whose turn has ended calls one for which its own memory would be needed."""
    repository.add("caller", _HELD + CALLS, min_resident_seconds="0")
    for name in ("plain", "next"):
        repository.add(name, min_resident_seconds="0")
    with start(models=1.5) as server, ThreadPoolExecutor(2) as pool:
        calling = pool.submit(server.answer, "caller")
        wait_until((repository.path.parent / "began").exists)
        coming = pool.submit(server.answer, "next")
        wait_until(lambda: "caller" not in server.ready())
        (repository.path.parent / "go").touch()
        with pytest.raises(InferenceServerException, match="models that call it hold the rest"):
            calling.result()
        assert coming.result() == 1


async def test_a_model_with_files_of_a_request_stays_as_no_call_could_load_it(
    repository: Repository,  # noqa: F811
) -> None:
    for name in ("plain", "other"):
        repository.add(name, min_resident_seconds="0")
    code = (repository.path / "plain" / "1" / "model.py").read_text().replace("x + 1", "x + 7")
    repository.add_weights("other", ONE)
    async with serving(repository, models=2.5) as server:
        config = json.dumps({"backend": "python", **_TENSORS})
        await server.load("plain", {"config": config, "file:1/model.py": code.encode()})
        assert await answer(server, "plain") == 7
        with pytest.raises(InferenceError, match="finds no room"):
            await answer(server, "other")
        assert await answer(server, "plain") == 7
        await server.load("plain", {})
        assert await answer(server, "other") == 1
        assert await answer(server, "plain") == 1


async def test_a_refusal_that_is_told_again_keeps_nothing_of_its_calls(
    repository: Repository,  # noqa: F811
) -> None:
    repository.add("wrong", idle_seconds="-1")
    repository.add("broken", "x" * 4 + " = (")
    async with serving(repository) as server:
        for model in ("wrong", "broken"):
            depths = [await _depth(server, model) for _ in range(6)]
            assert depths[2] == depths[5]


async def _depth(server: InferenceServer, model: str) -> int:
    """The frames that an error of a model holds."""
    with pytest.raises(InferenceError) as refused:
        await answer(server, model)
    error: Any = refused.value
    frames = 0
    while error is not None:
        frames += sum(1 for _ in traceback.walk_tb(error.__traceback__))
        error = error.__cause__
    return frames
