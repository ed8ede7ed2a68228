"""What this version cannot do yet is refused by name."""

from __future__ import annotations

import re
from typing import Any

import pytest

from harness.outcomes import raises_nothing
from penstock.core.backend import Backend, Traits
from penstock.core.config import ModelConfig, config_from_json
from penstock.core.errors import UnsupportedError
from penstock.models.config.defaults import with_defaults
from penstock.models.config.unsupported import (
    HINTS,
    UNSUPPORTED,
    WITHOUT_EFFECT,
    is_given,
    refuse_batch_tensors,
    refuse_unsupported,
    warn_without_effect,
)
from penstock_backends.identity import IdentityBackend
from penstock_backends.onnxruntime.backend import OnnxRuntimeBackend
from penstock_backends.tensorrt import TensorRtBackend

SUPPORTED: list[dict[str, Any]] = [
    {},
    {"max_batch_size": 8, "dynamic_batching": {}},
    {
        "max_batch_size": 8,
        "dynamic_batching": {
            "preferred_batch_size": [4, 8],
            "max_queue_delay_microseconds": 100,
            "default_queue_policy": {},
        },
    },
    {
        "max_batch_size": 8,
        "dynamic_batching": {
            "preserve_ordering": True,
            "priority_levels": 1,
            "default_priority_level": 1,
            "default_queue_policy": {"allow_timeout_override": True, "max_queue_size": 4},
            "priority_queue_policy": {"1": {"default_timeout_microseconds": 1}},
        },
    },
    {"input": [{"name": "a", "dims": [-1], "allow_ragged_batch": True}]},
    {"instance_group": [{"kind": kind, "count": 2} for kind in ("KIND_CPU", "KIND_MODEL")]},
    {"instance_group": [{"kind": "KIND_GPU", "gpus": [0]}]},
    {"version_policy": {"specific": {"versions": [1, 3]}}},
    {
        "input": [{"name": "a", "dims": [1], "reshape": {"shape": []}, "optional": True}],
        "output": [{"name": "b", "label_filename": "labels.txt"}],
    },
    {"model_transaction_policy": {"decoupled": True}},
    {"parameters": {"a": {"string_value": "b"}}, "metric_tags": {"a": "b"}},
    {"default_model_filename": "mine.onnx", "response_cache": {}},
    {
        "optimization": {
            "graph": {"level": 1},
            "priority": "PRIORITY_MAX",
            "input_pinned_memory": {"enable": True},
            "execution_accelerators": {"cpu_execution_accelerator": [{"name": "openvino"}]},
        }
    },
]

NOT_YET: dict[str, dict[str, Any]] = {
    "cc_model_filenames": {"cc_model_filenames": {"7.5": "a.plan"}},
    "ensemble_scheduling.step.model_namespace": {
        "ensemble_scheduling": {"step": [{"model_namespace": "n"}]}
    },
}


@pytest.mark.parametrize("written", SUPPORTED)
def test_supported_fields_are_accepted(written: dict[str, Any]) -> None:
    with raises_nothing():
        refuse_unsupported(config_from_json({"name": "m", **written}))


@pytest.mark.parametrize("path", UNSUPPORTED)
def test_what_does_not_work_yet_is_refused_by_name(path: str) -> None:
    config = config_from_json({"name": "m", **NOT_YET[path]})
    text = f"model 'm': field '{path}' is not supported by this version of Penstock"
    with pytest.raises(UnsupportedError, match=re.escape(text)):
        refuse_unsupported(config)


def test_a_field_that_the_backend_reads_is_accepted() -> None:
    config = config_from_json({"name": "m", **NOT_YET["cc_model_filenames"]})
    with raises_nothing():
        refuse_unsupported(config, TensorRtBackend)
    with pytest.raises(UnsupportedError, match="field 'cc_model_filenames' is not supported"):
        refuse_unsupported(config, IdentityBackend)


class Computing(IdentityBackend):
    """A backend that computes tensors of a batch."""

    traits = Traits(batch_tensors=True)


@pytest.mark.parametrize("path", ["batch_input", "batch_output"])
def test_batch_tensors_are_refused_without_backend_support(path: str) -> None:
    config = config_from_json({"name": "m", "backend": "identity", path: [{}]})
    refuse_batch_tensors(config, Computing)
    with pytest.raises(UnsupportedError, match=f"field '{path}' is not supported by backend 'ide"):
        refuse_batch_tensors(config, IdentityBackend)


_PINNED = ("optimization.input_pinned_memory", "optimization.output_pinned_memory")
HINTED: dict[str, dict[str, Any]] = {
    "optimization.priority": {"optimization": {"priority": "PRIORITY_MAX"}},
    "optimization.cuda": {"optimization": {"cuda": {"graphs": True}}},
    "optimization.gather_kernel_buffer_threshold": {
        "optimization": {"gather_kernel_buffer_threshold": 1}
    },
    "optimization.eager_batching": {"optimization": {"eager_batching": True}},
    "sequence_batching.state.use_same_buffer_for_input_output": {
        "sequence_batching": {"state": [{"use_same_buffer_for_input_output": True}]}
    },
    "sequence_batching.state.use_growable_memory": {
        "sequence_batching": {"state": [{"use_growable_memory": True}]}
    },
    "optimization.graph": {"optimization": {"graph": {"level": 1}}},
    "optimization.execution_accelerators": {
        "optimization": {"execution_accelerators": {"cpu_execution_accelerator": [{"name": "x"}]}}
    },
    "model_operations": {"model_operations": {"op_library_filename": ["a.so"]}},
    "instance_group.secondary_devices": {"instance_group": [{"secondary_devices": [{}]}]},
    "optimization.input_pinned_memory": {"optimization": {"input_pinned_memory": {}}},
    "optimization.output_pinned_memory": {"optimization": {"output_pinned_memory": {}}},
}


@pytest.mark.contract("C-26")
@pytest.mark.parametrize("path", sorted({*WITHOUT_EFFECT, *HINTS} | HINTED.keys()))
def test_hints_without_effect_are_told_by_name(path: str, caplog: pytest.LogCaptureFixture) -> None:
    config = config_from_json({"name": "m", "backend": "identity", **HINTED[path]})
    warn_without_effect(config, IdentityBackend)
    assert caplog.messages == [f"model 'm': without effect with backend 'identity': {path}"]


@pytest.mark.contract("C-34")
@pytest.mark.parametrize("backend", [OnnxRuntimeBackend, TensorRtBackend])
def test_hints_that_the_backend_reads_are_not_told(
    backend: type[Backend], caplog: pytest.LogCaptureFixture
) -> None:
    for path in backend.traits.hints - {*UNSUPPORTED}:
        warn_without_effect(config_from_json({"name": "m", **HINTED[path]}), backend)
    warn_without_effect(with_defaults(ModelConfig(name="m")), IdentityBackend)
    assert not caplog.messages
    assert backend.traits.hints <= {*HINTS, *UNSUPPORTED, *_PINNED}


def test_fields_are_looked_for_in_lists() -> None:
    config = config_from_json({"input": [{}, {"optional": True}]})
    assert is_given(config, "input.optional")
    assert not is_given(config, "input.reshape")
    assert not is_given(ModelConfig(), "input.optional")
