"""What one model takes, in parts, by its configuration and its files."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from backends.tensor_models import graphs
from models.sizing.headers.files import onnx, safetensors, tensor, written
from penstock.core.backend import find_backend, installed_backends
from penstock.core.config import (
    EnsembleScheduling,
    Input,
    InstanceGroup,
    InstanceKind,
    ModelConfig,
    Output,
    Parameter,
)
from penstock.core.errors import ModelLoadError
from penstock.core.tensor import DataType
from penstock.models.sizing.estimate import (
    HOST,
    Engine,
    ModelFacts,
    Parts,
    Place,
    estimate,
    with_headroom,
)
from penstock.models.sizing.kv_cache import EngineSettings
from penstock.models.sizing.weights import FoundWeights

_GIB = 1 << 30
_LLAMA = {
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "max_position_embeddings": 8192,
    "dtype": "bfloat16",
}
_TOKEN = 131072
"""Bytes of its cache for a token."""


@pytest.mark.parametrize("backend", installed_backends())
def test_the_table_of_engines_has_each_backend_on_its_host(backend: str) -> None:
    assert Engine.of(backend) is not Engine.of("default")
    assert Engine.of(backend).host == find_backend(backend).traits.host


def test_a_backend_of_others_is_taken_for_a_process_of_python() -> None:
    assert Engine.of("mine") == Engine.of("python")


def _tensors(backend: str, *groups: InstanceGroup, **parameters: str) -> ModelFacts:
    config = ModelConfig(
        name="m",
        backend=backend,
        instance_group=groups,
        parameters={name: Parameter(text) for name, text in parameters.items()},
    )
    return ModelFacts(config, weights={"FP32": 1000})


def _group(kind: InstanceKind, count: int = 1, *gpus: int) -> InstanceGroup:
    return InstanceGroup(kind=kind, count=count, gpus=gpus)


CPU, GPU, MODEL = InstanceKind.KIND_CPU, InstanceKind.KIND_GPU, InstanceKind.KIND_MODEL


@pytest.mark.parametrize(
    ("facts", "copies"),
    [
        (_tensors("onnxruntime", _group(CPU, 3)), 1),
        (_tensors("onnxruntime", _group(CPU, 3), share_session_between_instances="0"), 3),
        (_tensors("onnxruntime", _group(CPU, 3), **{"penstock.host": "process"}), 3),
        (_tensors("python", _group(CPU, 3)), 3),
        (_tensors("openvino", _group(CPU, 3)), 1),
    ],
)
def test_instances_of_a_cpu_share_weights_where_their_engine_does(
    facts: ModelFacts, copies: int
) -> None:
    found = estimate(facts, Place())
    assert found.instances == 3
    one = Engine.of(facts.config.backend).loaded(facts.weights, HOST)
    assert found.parts[HOST].weights == {"FP32": one["FP32"] * copies}


def test_instances_on_a_gpu_have_weights_each() -> None:
    found = estimate(_tensors("onnxruntime", _group(GPU, 2, 1)), Place((0, 1)))
    assert found.parts["gpu1"].weights == {"FP32": 2000}
    assert found.devices == ("gpu1",)


def test_without_a_group_a_model_is_on_each_gpu() -> None:
    found = estimate(_tensors("pytorch"), Place((0, 1)))
    assert found.devices == ("gpu0", "gpu1")
    engine = Engine.of("pytorch")
    assert found.parts["gpu0"].runtime == engine.context
    assert found.parts[HOST].runtime == 2 * (engine.process + engine.instance)


def test_an_engine_for_cpus_is_on_the_host_beside_gpus() -> None:
    assert estimate(_tensors("openvino"), Place((0,))).devices == (HOST,)


def test_each_process_takes_what_its_engine_takes() -> None:
    one = estimate(_tensors("python", _group(CPU, 1)), Place()).parts[HOST].runtime
    three = estimate(_tensors("python", _group(CPU, 3)), Place()).parts[HOST].runtime
    assert three == 3 * one > 0


def test_buffers_follow_the_largest_batch_and_the_tensors() -> None:
    config = ModelConfig(
        name="m",
        backend="onnxruntime",
        max_batch_size=8,
        input=(Input(name="x", data_type=DataType.FP32, dims=(3, 10)),),
        output=(Output(name="y", data_type=DataType.FP16, dims=(-1,)),),
        instance_group=(_group(CPU, 2),),
    )
    found = estimate(ModelFacts(config), Place())
    assert found.parts[HOST].activations == 2 * 8 * 4 * (3 * 10 * 4 + 256 * 2)


def test_an_ensemble_takes_nothing_of_its_own() -> None:
    config = ModelConfig(name="e", platform="ensemble", ensemble_scheduling=EnsembleScheduling())
    found = estimate(ModelFacts.read(config, 1, Path("gone")), Place())
    assert (found.parts, found.planned) == ({}, 0)


# -- language models ---------------------------------------------------------------------------


def _language(folder: Path, backend: str, settings: dict[str, Any], count: int = 1) -> ModelFacts:
    weights = folder / "weights"
    weights.mkdir(exist_ok=True)
    (weights / "config.json").write_text(json.dumps(_LLAMA))
    written(weights / "model.safetensors", safetensors({"a": ("BF16", [500], 1000)}))
    (folder / "model.json").write_text(json.dumps({"model": "weights", **settings}))
    group = InstanceGroup(kind=MODEL, count=count)
    config = ModelConfig(name="llm", backend=backend, instance_group=(group,))
    return ModelFacts.read(config, 1, folder)


def test_the_cache_holds_as_many_sequences_as_are_to_run(tmp_path: Path) -> None:
    facts = _language(tmp_path, "vllm", {"max_model_len": 1000, "max_num_seqs": 4})
    found = estimate(facts, Place((0,)))
    assert found.parts["gpu0"].weights == {"BF16": 1000}
    assert found.parts["gpu0"].kv_cache == 4 * 1000 * _TOKEN


def test_without_a_number_of_sequences_one_of_full_length_is_counted_and_said(
    tmp_path: Path,
) -> None:
    found = estimate(_language(tmp_path, "vllm", {}), Place((0,)))
    assert found.parts["gpu0"].kv_cache == 8192 * _TOKEN
    assert "one sequence of 8192 tokens" in found.notes[0]


def test_a_fraction_of_the_card_is_taken_whatever_is_needed(tmp_path: Path) -> None:
    facts = _language(tmp_path, "vllm", {"gpu_memory_utilization": 0.5})
    parts = estimate(facts, Place((0,), 80 * _GIB)).parts["gpu0"]
    assert parts.reserved == parts.planned == 40 * _GIB
    assert estimate(facts, Place((0,))).parts["gpu0"].planned == with_headroom(parts.total)


@pytest.mark.parametrize(
    ("settings", "cache"),
    [
        ({"kv_cache_memory_bytes": 12345}, 12345),
        ({"num_gpu_blocks_override": 10}, 160 * _TOKEN),
        ({"num_gpu_blocks_override": 10, "kv_cache_dtype": "fp8"}, 80 * _TOKEN),
    ],
)
def test_a_cache_whose_size_is_said_has_that(
    tmp_path: Path, settings: dict[str, Any], cache: int
) -> None:
    parts = estimate(_language(tmp_path, "vllm", settings), Place((0,), 80 * _GIB)).parts["gpu0"]
    assert (parts.kv_cache, parts.reserved) == (cache, 0)


def test_a_model_over_two_gpus_has_half_of_everything_on_each(tmp_path: Path) -> None:
    settings = {"tensor_parallel_size": 2, "max_model_len": 100, "max_num_seqs": 1}
    found = estimate(_language(tmp_path, "vllm", settings), Place((0, 1, 2)))
    assert found.devices == ("gpu0", "gpu1")
    assert found.parts["gpu1"].weights == {"BF16": 500}
    assert found.parts["gpu1"].kv_cache == 50 * _TOKEN
    assert found.instances == 1


def test_openvino_has_its_cache_on_the_host_with_its_own_defaults(tmp_path: Path) -> None:
    facts = _language(tmp_path, "openvino_genai", {"properties": {"KV_CACHE_PRECISION": "f32"}})
    found = estimate(facts, Place((0,)))
    assert found.parts[HOST].kv_cache == 2048 * 32 * _TOKEN * 2
    fewer = _language(tmp_path, "openvino_genai", {"num_kv_blocks": 10, "kv_cache_dtype": "f16"})
    assert estimate(fewer, Place()).parts[HOST].kv_cache == 320 * _TOKEN


def test_a_model_that_is_not_on_this_machine_is_said(tmp_path: Path) -> None:
    (tmp_path / "model.json").write_text('{"model": "org/name"}')
    config = ModelConfig(name="llm", backend="vllm")
    facts = ModelFacts.read(config, 1, tmp_path)
    assert "'org/name' is not on this machine: fetch it" in facts.notes[0]


@pytest.mark.parametrize("text", ["[]", "{", '{"max_num_seqs": -1}', '{"max_num_seqs": "x"}'])
def test_settings_that_cannot_be_are_one_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "model.json").write_text(text)
    with pytest.raises(ModelLoadError, match=r"model\.json"):
        ModelFacts.read(ModelConfig(name="llm", backend="vllm"), 1, tmp_path)


def test_the_longest_sequence_may_be_left_to_vllm(tmp_path: Path) -> None:
    facts = _language(tmp_path, "vllm", {"max_model_len": -1})
    assert estimate(facts, Place((0,))).parts["gpu0"].kv_cache == 8192 * _TOKEN


@pytest.mark.parametrize("backend", ["python", "onnxruntime", "pytorch", "fil"])
def test_only_the_settings_of_engines_that_have_some_are_read(tmp_path: Path, backend: str) -> None:
    (tmp_path / "model.json").write_text('["of its own", {"max_num_seqs": -1}]')
    facts = ModelFacts.read(ModelConfig(name="m", backend=backend), 1, tmp_path)
    assert facts.settings == EngineSettings()


# -- files -------------------------------------------------------------------------------------


def test_the_file_that_the_configuration_names_counts(tmp_path: Path) -> None:
    written(tmp_path / "model.onnx", onnx(tensor(1, [4], raw=bytes(16))))
    written(tmp_path / "other.onnx", onnx(tensor(1, [1], raw=bytes(4))))
    config = ModelConfig(name="m", backend="onnxruntime", default_model_filename="other.onnx")
    assert ModelFacts.read(config, 1, tmp_path).weights == {"FP32": 4}
    code = replace(config, backend="python", default_model_filename="model.py")
    assert ModelFacts.read(code, 1, tmp_path).weights == {"FP32": 16}


def test_other_threads_get_their_turns_while_headers_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    intervals = list[float]()

    def read(_: Path) -> FoundWeights:
        intervals.append(sys.getswitchinterval())
        return FoundWeights({})

    monkeypatch.setattr("penstock.models.sizing.estimate.read_weights", read)
    ModelFacts.read(ModelConfig(name="m", backend="python"), 1, tmp_path)
    assert intervals == [pytest.approx(0.001)]
    assert sys.getswitchinterval() > 0.001


def test_a_folder_without_weights_is_said_but_of_models_that_need_none(tmp_path: Path) -> None:
    without = ModelFacts.read(ModelConfig(name="m", backend="onnxruntime"), 1, tmp_path)
    assert "no file with weights was found" in without.notes[0]
    assert ModelFacts.read(ModelConfig(name="m", backend="python"), 1, tmp_path).notes == ()
    graphs.save_identity(tmp_path / "model.onnx")
    graph = ModelConfig(name="m", backend="onnxruntime", default_model_filename="model.onnx")
    assert ModelFacts.read(graph, 1, tmp_path).notes == ()


# -- parts -------------------------------------------------------------------------------------


def test_parts_are_added_up() -> None:
    one = Parts({"FP32": 1, "INT8": 2}, kv_cache=3, activations=4, runtime=5)
    both = one + Parts({"FP32": 10}, kv_cache=1, reserved=7)
    assert both == Parts({"FP32": 11, "INT8": 2}, 4, 4, 5, 7)
    assert both.total == 26
    assert both.planned == 30
