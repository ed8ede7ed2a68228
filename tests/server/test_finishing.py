"""Sequences in progress when the server stops (S-22)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from fakes import InstallBackend, Script, make_request, turns
from penstock.core.errors import InvalidRequestError, UnavailableError
from penstock.core.exit_deadline import ExitDeadline
from penstock.core.request import InferenceResponse
from penstock.models.loading.build_version import VersionBuilder
from penstock.models.loading.lifecycle import ModelLifecycle
from penstock.models.repository.repository import ModelRepository
from penstock.server.answers import ServerMetadata
from penstock.server.server import InferenceServer
from penstock.system.reaper import Reaper

pytestmark = pytest.mark.contract("S-22")

TENSORS = """
max_batch_size: 8
input { name: "IN" data_type: TYPE_INT32 dims: -1 }
output { name: "OUT" data_type: TYPE_INT32 dims: -1 }
"""
MODELS = {
    "plain": 'backend: "fake"',
    "m": """backend: "fake" sequence_batching { max_sequence_idle_microseconds: %d control_input {
        name: "START" control { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } } }""",
    "above": """platform: "ensemble" ensemble_scheduling { step { model_name: "m" model_version: -1
        input_map { key: "IN" value: "IN" } output_map { key: "OUT" value: "OUT" } } }""",
}
EXITING = r"^Server exiting$"
NO_OTHERS = (
    r"^Server is stopping, scheduler for model has stopped accepting new inference requests$"
)


class House:
    """A server over three models, and one sequence for each way to reach the same one."""

    def __init__(self, path: Path, install: InstallBackend, idle: float = 60.0) -> None:
        self.script = Script(answer=lambda r: InferenceResponse({"OUT": r.inputs["IN"]}))
        install("fake", self.script.backend)
        for name, config in MODELS.items():
            (path / name / "1").mkdir(parents=True)
            text = config % (idle * 1e6) if "%d" in config else config
            (path / name / "config.pbtxt").write_text(text + TENSORS)
        repository = ModelRepository([path])
        lifecycle = ModelLifecycle(repository, VersionBuilder(lambda _: {}, Reaper()))
        self.server = InferenceServer(ServerMetadata("penstock", "1"), repository, lifecycle)
        self.stopping = asyncio.ensure_future(self.server.wait_stopping())

    async def ask(self, model: str, sequence: int = 0, **flags: bool) -> None:
        """A request that is answered, or raises."""
        named: dict[str, Any] = {f"sequence_{flag}": value for flag, value in flags.items()}
        request = make_request(model_name=model, correlation_id=sequence, **named)
        (response,) = [response async for response in self.server.infer(request)]
        assert [*response.outputs] == ["OUT"]

    def exiting(self, seconds: float = 30.0) -> asyncio.Future[None]:
        """A task that waits for the sequences of a server that stops."""
        self.server.refuse_new_work(ExitDeadline(5))
        return asyncio.ensure_future(self.server.finish_sequences(ExitDeadline(seconds)))


@pytest.fixture
async def house(tmp_path: Path, install_backend: InstallBackend) -> AsyncIterator[House]:
    """With a sequence 1 that was begun at the model, and a sequence 2 at the ensemble above it."""
    house = House(tmp_path, install_backend)
    assert not await house.server.start(list(MODELS))
    await house.ask("m", 1, start=True)
    await house.ask("above", 2, start=True)
    yield house
    await house.server.stop(ExitDeadline(5))


async def test_sequences_that_were_begun_can_be_ended(house: House) -> None:
    waiting = house.exiting()
    await house.ask("m", 1)
    await house.ask("above", 2)
    await house.ask("above", 2, end=True)
    await turns()
    assert not waiting.done()
    assert not house.stopping.done()
    await house.ask("m", 1, end=True)
    await asyncio.wait_for(waiting, 20)
    await asyncio.wait_for(house.stopping, 20)


@pytest.mark.contract("W-08")
@pytest.mark.parametrize("model", ["m", "above"])
async def test_no_sequence_is_begun_any_more(house: House, model: str) -> None:
    waiting = house.exiting()
    for id, start in ((3, True), (1, True), (2, True), (0, False)):
        with pytest.raises(UnavailableError, match=NO_OTHERS):
            await house.ask(model, id, start=start)
    with pytest.raises(InvalidRequestError, match="must specify the START flag"):
        await house.ask(model, 3)
    waiting.cancel()


async def test_other_models_take_no_work_any_more(house: House) -> None:
    waiting = house.exiting()
    with pytest.raises(UnavailableError, match=EXITING):
        await house.ask("plain", 1)
    with pytest.raises(UnavailableError, match=EXITING):
        await house.server.model_metadata("m", "")
    assert not house.server.find("m", "").decoupled
    waiting.cancel()


async def test_the_exit_waits_no_longer_than_it_may(house: House) -> None:
    await asyncio.wait_for(house.exiting(seconds=0.02), 20)
    with pytest.raises(UnavailableError, match=EXITING):
        await house.ask("m", 1)


async def test_idle_sequences_hold_up_nothing_for_longer_than_they_may(
    tmp_path: Path, install_backend: InstallBackend
) -> None:
    house = House(tmp_path, install_backend, idle=0.05)
    await house.server.start(list(MODELS))
    await house.ask("m", 1, start=True)
    await asyncio.wait_for(house.exiting(), 20)
    await house.server.stop(ExitDeadline(5))


async def test_a_server_without_sequences_takes_no_work_at_once(
    tmp_path: Path, install_backend: InstallBackend
) -> None:
    house = House(tmp_path, install_backend)
    await house.server.start(list(MODELS))
    await asyncio.wait_for(house.exiting(), 20)
    with pytest.raises(UnavailableError, match=EXITING):
        await house.ask("m", 1, start=True)
    await house.server.stop(ExitDeadline(5))
