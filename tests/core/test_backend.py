"""The interface of backends, and how they are found."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any, cast

import pytest

from fakes import FakeBackend, InstallBackend, Script, model_config
from penstock.core.backend import (
    Backend,
    Controllable,
    Host,
    Inspectable,
    InstanceContext,
    Traits,
    WithApplication,
    WithEngineFacts,
    WithInterpreter,
    WithMetrics,
    WithReadiness,
    WithVariants,
    find_backend,
    installed_backends,
    package_missing,
)
from penstock.core.errors import ModelLoadError
from penstock.core.flow_control import Window


def test_a_backend_is_found_by_the_name_that_a_distribution_announces(
    install_backend: InstallBackend,
) -> None:
    install_backend("of-a-stranger", FakeBackend)
    assert find_backend("of-a-stranger") is FakeBackend


def test_a_backend_that_is_not_installed_is_refused_with_those_that_are() -> None:
    with pytest.raises(ModelLoadError, match=r"unable to find backend 'nope'.*identity.*repeat"):
        find_backend("nope")


@pytest.mark.parametrize("announced", [int, "text", FakeBackend.execute])
def test_what_is_no_backend_is_refused(install_backend: InstallBackend, announced: object) -> None:
    install_backend("odd", announced)
    with pytest.raises(ModelLoadError, match="backend 'odd' is not a subclass of"):
        find_backend("odd")


def test_a_backend_without_its_verb_cannot_be_made() -> None:
    class Idle(Backend):
        async def initialize(self, context: InstanceContext) -> None:
            pass

    with pytest.raises(TypeError, match="execute"):
        Idle()  # type: ignore[abstract]


async def test_what_a_backend_need_not_say_has_an_answer() -> None:
    backend, config = Script().backend(), model_config()
    assert await backend.complete_config(config, Path(), {}) is config
    backend.check_config(config)
    assert (backend.traits.host, backend.traits.serial) == ("thread", True)


@pytest.mark.parametrize("name", [one.name for one in fields(Traits)])
def test_a_trait_that_is_set_as_an_attribute_is_refused_where_the_class_is_made(name: str) -> None:
    with pytest.raises(TypeError, match=rf"Own: '{name}' is no .*traits = Traits\({name}=\.\.\.\)"):
        type("Own", (Backend,), {name: None})


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("control", Controllable),
        ("openai_app", WithApplication),
        ("engine_facts", WithEngineFacts),
        ("interpreter", WithInterpreter),
        ("metrics", WithMetrics),
        ("histograms", WithMetrics),
        ("healthy", WithReadiness),
        ("unready", WithReadiness),
        ("unload_unhealthy", WithReadiness),
        ("variant", WithVariants),
    ],
)
def test_a_method_that_nobody_would_ask_is_refused_where_the_class_is_made(
    name: str, part: type[Any]
) -> None:
    body: dict[str, Any] = {name: None}
    why = rf"Own: '{name}' .* part {part.__name__}: class Own\({part.__name__}, FakeBackend\)"
    with pytest.raises(TypeError, match=why):
        type("Own", (FakeBackend,), body)
    for bases in ((part, FakeBackend), (FakeBackend, part)):
        assert issubclass(type("Own", bases, body), part)


def test_traits_that_are_none_are_refused_where_the_class_is_made() -> None:
    with pytest.raises(TypeError, match=r"backend Mine: write traits = Traits\(\.\.\.\), not "):
        type("Mine", (Backend,), {"traits": {"host": "process"}})
    with pytest.raises(TypeError, match=r"host is one of \('thread', 'process'\), not 'proces'"):
        Traits(host=cast(Host, "proces"))


async def test_what_a_part_need_not_say_has_an_answer() -> None:
    class Plain(WithMetrics, WithReadiness, FakeBackend):
        pass

    backend = Plain()
    assert (await backend.healthy(), backend.unready(), backend.unload_unhealthy) == (
        True,
        "",
        False,
    )
    assert (backend.metrics(), backend.histograms()) == ({}, {})


def test_a_model_lies_above_its_versions() -> None:
    path = Path("/models/m/3")
    context = InstanceContext("m_0", model_config(), 3, path, run=lambda: None)  # type: ignore
    assert context.model_path == Path("/models/m")


def test_a_package_is_missing_only_where_it_can_be_looked_for() -> None:
    given = [package_missing(name, {}) for name in ("json", "no_such_package_anywhere")]
    elsewhere = package_missing("no_such_package_anywhere", {"python": "/other/python"})
    assert (given, elsewhere) == ([False, True], False)


def test_installed_backends_are_in_order(install_backend: InstallBackend) -> None:
    install_backend("aaa", FakeBackend)
    names = installed_backends()
    assert names == sorted(set(names))
    assert {"aaa", "identity", "python", "repeat"} <= {*names}


def test_what_a_look_at_files_need_not_say_has_an_answer() -> None:
    class Plain(Inspectable, FakeBackend):
        pass

    config = model_config()
    Plain.check_files(config, Path(), {})
    assert (Plain.weight_files(config, Path(), {}), Plain.completed_form(config)) == ((), None)
    assert (Plain.completes_by_reading(config, Path()), Plain.engine_missing({})) == (False, "")


def test_traits_that_are_not_given_are_these() -> None:
    """What a backend of others relies on, which says nothing of them."""
    traits = Traits()
    known = {
        "host": "thread",
        "serial": True,
        "batch_tensors": False,
        "hints": frozenset(),
        "eager": False,
        "takes_device_tensors": False,
        "reports_usage": False,
        "private_tmp": False,
        "process_main": "penstock.hosting.worker.host:run",
        "window": Window(responses=16, size=65_536),
    }
    assert {name: getattr(traits, name) for name in known} == known
