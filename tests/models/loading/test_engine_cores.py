"""Cores that a model's processes have for themselves, from its configuration."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from penstock.core.config import InstanceGroup, ModelConfig, Parameter
from penstock.core.errors import ConfigError
from penstock.core.placement import Placement
from penstock.hosting.parent.process import ProcessInstance
from penstock.models.loading.instance_factory import InstanceFactory
from penstock.models.serving.instance import ModelInstance
from penstock.system import own_cores
from penstock.system.reaper import Reaper
from penstock_backends.vllm import VllmBackend


def instances(text: str) -> list[ModelInstance]:
    factory = InstanceFactory(lambda _: {}, Reaper.__new__(Reaper), None, {})
    config = ModelConfig(
        name="m",
        instance_group=(InstanceGroup(name="m_0", count=1),),
        parameters={"penstock.engine_cores": Parameter(text)},
    )
    return factory.instances(VllmBackend, config, 1, Path("m/1"), None)


def test_its_processes_are_bound_to_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    (instance,) = instances("2-7")
    assert isinstance(instance, ProcessInstance)
    assert instance._context.placement == Placement((2, 7))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("3", "parameter 'penstock.engine_cores' must be '<first>-<last>', got '3'"),
        ("0-7", "cannot be '0-7': they leave no core for the server"),
        ("6-9", "cannot be '6-9': core 8 is not one of the server's"),
        ("0-999999", "core 8 is not one of the server's"),
    ],
)
def test_what_cannot_be_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, text: str, why: str
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    with pytest.raises(ConfigError) as refused:
        instances(text)
    assert why in str(refused.value)


def test_a_small_machine_has_none_to_spare(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(own_cores.FEWEST - 1)))
    with pytest.raises(ConfigError, match="the server has 3 cores; it takes 4"):
        instances("1-2")
