"""Session options from parameters and backend settings."""

from __future__ import annotations

import pytest

from backends.tensor_models import graphs
from penstock.core.config import (
    GraphOptimization,
    InstanceGroup,
    InstanceKind,
    ModelConfig,
    Operations,
    Optimization,
)
from penstock.system.cpu_share import cores
from penstock_backends.onnxruntime.settings import SessionSettings


def _groups(*counts: int) -> ModelConfig:
    groups = tuple(InstanceGroup(kind=InstanceKind.KIND_CPU, count=count) for count in counts)
    return ModelConfig(name="m", instance_group=groups)


def test_threads_are_the_share_of_the_cores_that_an_instance_has() -> None:
    assert SessionSettings.from_config(_groups(1), {}).intra_op_threads == cores()
    assert SessionSettings.from_config(_groups(99, 99), {}).intra_op_threads == 1


@pytest.mark.contract("B-05", "B-21")
def test_parameters_go_before_server_settings() -> None:
    server = {"intra_op_thread_count": "3", "inter_op_thread_count": "2"}
    config = ModelConfig(name="m", parameters=graphs.parameters(intra_op_thread_count="5"))
    found = SessionSettings.from_config(config, server)
    assert (found.intra_op_threads, found.inter_op_threads) == (5, 2)


def test_a_shared_pool_has_the_size_that_the_server_gives() -> None:
    server = {"enable-global-threadpool": "1", "intra_op_thread_count": "3"}
    config = ModelConfig(name="m", parameters=graphs.parameters(intra_op_thread_count="5"))
    found = SessionSettings.from_config(config, server)
    assert (found.shared_threads, found.intra_op_threads) == (True, 3)


@pytest.mark.contract("B-01")
def test_every_parameter_has_its_place() -> None:
    config = ModelConfig(
        name="m",
        optimization=Optimization(graph=GraphOptimization(-1)),
        model_operations=Operations(("ops.so",)),
        parameters=graphs.parameters(
            execution_mode="1",
            enable_mem_arena="0",
            enable_mem_pattern="false",
            memory__enable_memory_arena_shrinkage="cpu:0",
            session__use_device_allocator_for_initializers="1",
            other="ignored",
        ),
    )
    found = SessionSettings.from_config(config, {})
    assert (found.parallel, found.memory_arena, found.memory_pattern) == (True, False, False)
    assert (found.graph_level, found.operator_libraries) == (-1, ("ops.so",))
    assert found.run_entries == (("memory.enable_memory_arena_shrinkage", "cpu:0"),)
    assert ("session.use_device_allocator_for_initializers", "1") in found.session_entries


@pytest.mark.parametrize(("given", "expected"), [({}, "0"), ({"allow_spinning": "1"}, "1")])
def test_threads_spin_only_when_configured(given: dict[str, str], expected: str) -> None:
    named = {f"session__intra_op__{name}": text for name, text in given.items()}
    config = ModelConfig(name="m", parameters=graphs.parameters(**named))
    entries = dict(SessionSettings.from_config(config, {}).session_entries)
    assert entries["session.intra_op.allow_spinning"] == expected
