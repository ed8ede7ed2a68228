"""The start of a model's instances: side by side or not, and all of them or none."""

from __future__ import annotations

import asyncio
from typing import ClassVar

import pytest

from fakes import FakeBackend, turns, until
from models.loading.build_version.house import TENSORS, House
from penstock.core.backend import InstanceContext

THREE = f"{TENSORS} instance_group {{ count: 3 }}"


class Refusing(FakeBackend):
    """The instance m_0_1 cannot be loaded."""

    error: ClassVar[BaseException] = RuntimeError("out of memory")

    async def initialize(self, context: InstanceContext) -> None:
        if context.name == "m_0_1":
            await turns()
            raise self.error
        await super().initialize(context)


async def test_when_one_instance_fails_the_others_are_ended(house: House) -> None:
    with pytest.raises(RuntimeError, match="out of memory"):
        await house.load(THREE, Refusing)
    assert (house.names, house.script.finalized) == (["m_0_0", "m_0_2"], 2)


async def test_an_instance_that_fails_to_end_does_not_hide_why(house: House) -> None:
    class Worse(Refusing):
        async def finalize(self) -> None:
            await super().finalize()
            raise OSError("device lost")

    with pytest.raises(RuntimeError, match="out of memory"):
        await house.load(THREE, Worse)
    assert house.script.finalized == 2


async def test_a_load_that_is_given_up_ends_the_instances_that_have_started(
    house: House,
) -> None:
    class Slow(FakeBackend):
        async def initialize(self, context: InstanceContext) -> None:
            await super().initialize(context)
            if context.name == "m_0_1":
                await asyncio.Event().wait()

    loading = asyncio.ensure_future(house.load(THREE, Slow))
    await until(lambda: len(house.script.contexts) == 3)
    loading.cancel()
    await asyncio.wait([loading])
    assert (loading.cancelled(), house.script.finalized) == (True, 2)


@pytest.mark.contract("I-12")
async def test_instances_start_side_by_side(house: House) -> None:
    class Patient(FakeBackend):
        async def initialize(self, context: InstanceContext) -> None:
            await super().initialize(context)
            await until(lambda: len(self.script.contexts) == 3)

    model = await asyncio.wait_for(house.load(THREE, Patient), 20)
    await model.stop()


@pytest.mark.contract("I-12")
async def test_instances_start_one_after_the_other_where_the_environment_says_so(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    starting: list[int] = []

    class Alone(FakeBackend):
        async def initialize(self, context: InstanceContext) -> None:
            await super().initialize(context)
            starting.append(len(starting))
            count = len(starting)
            await turns()
            assert len(starting) == count
            if count == 3:
                raise ValueError("no third one")

    monkeypatch.setenv("TRITON_PARALLEL_INSTANCE_LOADING", "0")
    with pytest.raises(ValueError, match="no third one"):
        await house.load(THREE, Alone)
    assert (starting, house.script.finalized) == ([0, 1, 2], 2)
