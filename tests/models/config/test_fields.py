"""Every field of a configuration is read, refused by name, or told as without effect.

The walk is over the protobuf message, so a field of another version has to find a place.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from google.protobuf.descriptor import Descriptor

from penstock.models.config.unsupported import HINTS, UNSUPPORTED, WITHOUT_EFFECT
from penstock.protocol import model_config_pb2

_ROOT = Path(__file__).parents[3]
_ROOMS = (_ROOT / "service" / "penstock", _ROOT / "backends" / "penstock_backends")
_NOT_READ = (*UNSUPPORTED, *WITHOUT_EFFECT, *HINTS)

_READERS = {
    "": "models/config/defaults.py",
    "runtime": "models/loading/backends.py",
    "metric_tags": "models/serving/loaded_model.py",
    "version_policy": "models/repository/repository.py",
    "input": "models/config/validation/tensors.py",
    "input.allow_ragged_batch": "scheduling/batching/forming.py",
    "input.optional": "models/serving/admission.py",
    "output": "models/config/validation/tensors.py",
    "output.label_filename": "models/repository/version_files.py",
    "batch_input": "tensor_models/assembly.py",
    "batch_input.data_type": "tensor_models/check.py",
    "batch_output": "tensor_models/assembly.py",
    "batch_output.kind": "models/config/validation/tensors.py",
    "optimization.input_pinned_memory": "models/config/unsupported.py",
    "optimization.output_pinned_memory": "models/config/unsupported.py",
    "dynamic_batching": "models/loading/schedulers.py",
    "dynamic_batching.priority_levels": "scheduling/batching/priority.py",
    "dynamic_batching.default_priority_level": "scheduling/batching/priority.py",
    "dynamic_batching.default_queue_policy": "scheduling/batching/priority.py",
    "dynamic_batching.priority_queue_policy": "scheduling/batching/priority.py",
    "sequence_batching": "models/loading/schedulers.py",
    "sequence_batching.control_input": "scheduling/sequences/controls.py",
    "sequence_batching.state": "models/repository/implicit_state_files.py",
    "ensemble_scheduling": "models/loading/schedulers.py",
    "ensemble_scheduling.step.model_name": "core/config/scheduling.py",
    "ensemble_scheduling.step.model_namespace": "core/config/scheduling.py",
    "instance_group": "models/loading/instance_factory.py",
    "instance_group.count": "models/config/defaults.py",
    "instance_group.name": "models/config/defaults.py",
    "instance_group.host_policy": "core/config/instances.py",
    "instance_group.rate_limiter": "models/serving/limited_instance.py",
    "parameters": "core/config/model.py",
    "model_warmup": "models/loading/warmup.py",
    "model_transaction_policy": "core/config/model.py",
    "model_repository_agents": "models/config/pins.py",
    "response_cache": "models/loading/build_version.py",
    "model_metrics": "models/loading/statistics_of.py",
}
"""The module that reads a field, or all fields of a message that are not named themselves."""


def _leaves(message: Descriptor, path: str = "") -> Iterator[str]:
    for field in message.fields:
        inner, name = field.message_type, f"{path}.{field.name}" if path else field.name
        if inner is not None and inner.GetOptions().map_entry:
            inner = inner.fields_by_name["value"].message_type
        if inner is None or not inner.fields:
            yield name
        else:
            yield from _leaves(inner, name)


def _is_below(path: str, message: str) -> bool:
    return path == message or path.startswith(f"{message}.")


_LEAVES = list(_leaves(model_config_pb2.ModelConfig.DESCRIPTOR))


@pytest.mark.contract("C-42")
@pytest.mark.parametrize(
    "path", [p for p in _LEAVES if not any(_is_below(p, n) for n in _NOT_READ)]
)
def test_a_field_is_read_by_some_module(path: str) -> None:
    message = max((m for m in _READERS if _is_below(path, m)), key=len, default="")
    name = path.rpartition(".")[2]
    (source,) = (room / _READERS[message] for room in _ROOMS if (room / _READERS[message]).exists())
    assert re.search(rf"\.{name}_?\b|\"{name}\"|\b{name}=", source.read_text()), source


@pytest.mark.parametrize("path", [*_NOT_READ, *sorted(_READERS.keys() - {""})])
def test_the_tables_name_fields_that_there_are(path: str) -> None:
    assert any(_is_below(leaf, path) for leaf in _LEAVES)
