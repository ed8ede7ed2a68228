"""What models in processes may ask of their server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from access.kept import Kept
from fakes import FakeBuilder, make_request, marks, write_model
from penstock.core.errors import InferenceError, NotFoundError, UnavailableError, UnsupportedError
from penstock.core.exit_deadline import ExitDeadline
from penstock.metrics.custom import CustomMetrics
from penstock.models.loading.lifecycle import ModelLifecycle
from penstock.models.repository.repository import ModelRepository
from penstock.server.answers import ServerMetadata
from penstock.server.model_services import LocalServices
from penstock.server.server import InferenceServer
from penstock.telemetry.metrics import OwnNames


class House:
    """A server with the model `m` on disk, and what it does for processes."""

    def __init__(self, path: Path, **options: Any) -> None:
        write_model(path)
        repository = ModelRepository([path])
        self.lifecycle = ModelLifecycle(repository, FakeBuilder())
        self.server = InferenceServer(
            ServerMetadata("penstock", "1"), repository, self.lifecycle, **options
        )
        self.services = LocalServices(self.server, self.lifecycle, CustomMetrics(OwnNames()))


async def test_a_model_loads_another_with_a_configuration_and_files(tmp_path: Path) -> None:
    house = House(tmp_path, explicit_control=True)
    house.server.audit = kept = Kept()
    files = {"file:2/model": b"x"}
    await house.services.control("load", ["made", '{"backend": "fake"}', files])
    assert await house.services.control("ready", ["made", "2"])
    await house.services.control("unload", ["made", False])
    assert not await house.services.control("ready", ["made", ""])
    with pytest.raises(InferenceError):
        await house.services.control("load", ["absent", "", {}])
    await house.lifecycle.close()
    assert kept.by_server == [
        ("", "load", "made", "OK", "model"),
        ("", "unload", "made", "OK", "model"),
        ("", "load", "absent", "failed", "model"),
    ]


@pytest.mark.parametrize("dependents", [False, True])
async def test_a_model_says_whether_the_parts_of_another_are_unloaded_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dependents: bool
) -> None:
    house, asked = House(tmp_path), list[tuple[str, bool]]()

    async def unload(name: str, unload_dependents: bool) -> None:
        asked.append((name, unload_dependents))

    monkeypatch.setattr(house.server, "unload", unload)
    await house.services.control("unload", ["whole", dependents])
    assert asked == [("whole", dependents)]


@pytest.mark.contract("X-20", "M-01")
@pytest.mark.parametrize("verb", [["load", "m", "", {}], ["unload", "m", False]])
async def test_rules_of_the_server_hold_for_models_too(tmp_path: Path, verb: list[Any]) -> None:
    services = House(tmp_path).services
    with pytest.raises(UnavailableError, match="load / unload is not allowed"):
        await services.control(verb[0], verb[1:])


async def test_an_exiting_server_loads_nothing_but_answers_its_models(tmp_path: Path) -> None:
    house = House(tmp_path, explicit_control=True)
    await house.server.start(["m"])
    house.server.refuse_new_work(ExitDeadline(5))
    with pytest.raises(UnavailableError, match=r"^Server exiting$"):
        await house.services.control("load", ["m", "", {}])
    assert await marks(house.services.infer(make_request("a"))) == ["a"]


async def test_other_verbs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="asked for 'dance'"):
        await House(tmp_path).services.control("dance", [])


@pytest.mark.contract("VL-16")
async def test_model_of_an_unhealthy_engine_is_unloaded_in_any_mode(tmp_path: Path) -> None:
    house = House(tmp_path)
    await house.server.start(["m"])
    house.server.audit = kept = Kept()
    await house.services.control("retire", ["m"])
    assert kept.by_server == [("", "unload", "m", "OK", "unhealthy")]
    with pytest.raises(NotFoundError, match=r"^Request for unknown model: 'm' has no available"):
        house.services.infer(make_request("a"))
    await house.lifecycle.close()
