"""Commands of operators to the engines of models."""

from __future__ import annotations

from pathlib import Path

import pytest

from fakes import write_model
from fakes.instances import FakeInstance, make_model
from penstock.core.errors import InferenceError, NotFoundError, UnsupportedError
from penstock.server.answers import EngineControlled
from server.house import House


async def test_command_reaches_the_engine_of_a_version(tmp_path: Path) -> None:
    write_model(tmp_path, "two", (1, 3), "version_policy { all {} }")
    house = House(tmp_path, engine_control=True)
    server = await house.started("two")
    done = await server.control("two", "1", "sleep", {"level": 1})
    assert done == EngineControlled("two", "1", {"two_1": {"done": "sleep"}})
    assert (await server.control("two", "", "wake", {})).version == "3"
    assert [one.commands for one in sorted(house.builder.instances, key=lambda one: one.name)] == [
        [("sleep", {"level": 1})],
        [("wake", {})],
    ]


async def test_commands_are_off_by_default(house: House) -> None:
    server = await house.started("m")
    with pytest.raises(UnsupportedError, match="--allow-engine-control=true allows it"):
        await server.control("m", "", "sleep", {})
    assert [one.commands for one in house.builder.instances] == [[]]


async def test_unknown_model_is_named(tmp_path: Path) -> None:
    write_model(tmp_path)
    server = await House(tmp_path, engine_control=True).started("m")
    with pytest.raises(NotFoundError, match="'other' is not found"):
        await server.control("other", "", "sleep", {})


async def test_every_instance_carries_a_command_out() -> None:
    instances = [FakeInstance("m_0"), FakeInstance("m_1")]
    done = await make_model(*instances).control("sleep", {})
    assert done == {"m_0": {"done": "sleep"}, "m_1": {"done": "sleep"}}


@pytest.mark.parametrize(
    ("names", "text"), [(("m_0",), "^no$"), (("m_0", "m_1"), "^instance 'm_0': no$")]
)
async def test_refusal_names_the_instance_where_there_are_several(
    names: tuple[str, ...], text: str
) -> None:
    model = make_model(*map(FakeInstance, names))
    with pytest.raises(InferenceError, match=text):
        await model.control("refuse", {})
