"""What the server fills in, by rules and by what a Triton server was seen to answer."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import json_format

from harness.recorded import answers, needs_answers, write_models
from penstock.core.config import (
    DynamicBatching,
    EnsembleScheduling,
    InstanceGroup,
    InstanceKind,
    LatestVersions,
    ModelConfig,
    Optimization,
    PinnedMemory,
    SequenceBatching,
    StrategyOldest,
    TransactionPolicy,
    VersionPolicy,
    config_to_json,
)
from penstock.core.errors import ConfigError
from penstock.models.config.defaults import normalized, with_backend, with_defaults
from penstock.models.config.pbtxt import config_from_message
from penstock.models.config.validation import validate
from penstock.models.repository.repository import ModelRepository
from penstock.protocol import model_config_pb2

# -- backend -------------------------------------------------------------------------------------


def _kind(config: ModelConfig, *filenames: str) -> tuple[str, str, str]:
    found = with_backend(config, "m", filenames)
    return found.backend, found.platform, found.default_model_filename


@pytest.mark.contract("AC-02")
@pytest.mark.parametrize(
    ("filename", "backend", "platform"),
    [
        ("model.plan", "tensorrt", "tensorrt_plan"),
        ("model.onnx", "onnxruntime", "onnxruntime_onnx"),
        ("model.xml", "openvino", ""),
        ("model.pt", "pytorch", "pytorch_libtorch"),
        ("model.pt2", "pytorch", "torch_aoti"),
        ("model.py", "python", ""),
        ("model.savedmodel", "tensorflow", "tensorflow_savedmodel"),
        ("model.graphdef", "tensorflow", "tensorflow_graphdef"),
    ],
)
def test_file_tells_the_backend(filename: str, backend: str, platform: str) -> None:
    assert _kind(ModelConfig(), "labels.txt", filename) == (backend, platform, filename)
    assert _kind(ModelConfig(default_model_filename=filename)) == (backend, platform, filename)


@pytest.mark.contract("AC-02", "C-03")
@pytest.mark.parametrize(
    ("platform", "backend", "filename"),
    [
        ("tensorrt_plan", "tensorrt", "model.plan"),
        ("onnxruntime_onnx", "onnxruntime", "model.onnx"),
        ("pytorch_libtorch", "pytorch", "model.pt"),
        ("libtorch", "pytorch", "model.pt"),
        ("torch_aoti", "pytorch", "model.pt2"),
        ("tensorflow_savedmodel", "tensorflow", "model.savedmodel"),
    ],
)
def test_platform_tells_the_backend(platform: str, backend: str, filename: str) -> None:
    assert _kind(ModelConfig(platform=platform), "model.py") == (backend, platform, filename)


@pytest.mark.contract("C-04", "C-30")
def test_backend_tells_platform_and_file() -> None:
    kind = ("onnxruntime", "onnxruntime_onnx", "model.onnx")
    assert _kind(ModelConfig(backend="onnxruntime")) == kind
    assert _kind(ModelConfig(backend="onnxruntime"), "model.py") == kind


@pytest.mark.contract("R-26", "C-30")
def test_file_name_in_the_config_stays() -> None:
    config = ModelConfig(backend="python", default_model_filename="mine.py")
    assert _kind(config, "model.py") == ("python", "", "mine.py")


def test_an_unknown_backend_is_kept() -> None:
    assert _kind(ModelConfig(backend="identity"), "model.py") == ("identity", "", "")


@pytest.mark.parametrize(
    "config",
    [
        ModelConfig(platform="ensemble"),
        ModelConfig(platform="mine"),
        ModelConfig(default_model_filename="mine.bin"),
        ModelConfig(backend="tensorflow"),
    ],
)
def test_nothing_is_guessed_beside_what_is_given(config: ModelConfig) -> None:
    assert with_backend(config, "m", ()) == replace(config, name="m")


@pytest.mark.contract("AC-03")
def test_name_tells_the_backend_when_nothing_else_does() -> None:
    config = with_backend(ModelConfig(), "simple.identity", ["weights.bin"])
    assert (config.backend, config.default_model_filename) == ("identity", "model.identity")


@pytest.mark.contract("AC-03")
def test_model_without_any_backend_is_refused() -> None:
    text = (
        "Invalid model name: Could not determine backend for model 'm' with no backend in model "
        "configuration. Expected model name of the form 'model.<backend_name>'."
    )
    with pytest.raises(ConfigError, match=re.escape(text)):
        with_backend(ModelConfig(), "m", ())


@pytest.mark.contract("C-02")
def test_name_is_that_of_the_folder_unless_given() -> None:
    assert with_backend(ModelConfig(backend="b"), "m", ()).name == "m"
    assert with_backend(ModelConfig("n", backend="b"), "m", ()).name == "n"


# -- scheduling and memory -----------------------------------------------------------------------


@pytest.mark.contract("C-06", "C-41")
def test_latest_version_is_served_by_default() -> None:
    assert with_defaults(ModelConfig()).version_policy == VersionPolicy(latest=LatestVersions(1))
    given = VersionPolicy(latest=LatestVersions(3))
    assert with_defaults(ModelConfig(version_policy=given)).version_policy == given


@pytest.mark.contract("C-41")
def test_largest_batch_is_preferred_by_default() -> None:
    config = ModelConfig(max_batch_size=8, dynamic_batching=DynamicBatching())
    assert with_defaults(config).dynamic_batching == DynamicBatching((8,))
    config = replace(config, dynamic_batching=DynamicBatching((4,)))
    assert with_defaults(config).dynamic_batching == DynamicBatching((4,))


def test_no_batch_is_preferred_where_nothing_is_batched() -> None:
    config = with_defaults(ModelConfig(dynamic_batching=DynamicBatching()))
    assert config.dynamic_batching == DynamicBatching()


def test_sequences_may_be_silent_for_a_second() -> None:
    config = ModelConfig(
        max_batch_size=4, sequence_batching=SequenceBatching(oldest=StrategyOldest())
    )
    assert with_defaults(config).sequence_batching == SequenceBatching(
        oldest=StrategyOldest(preferred_batch_size=(4,)), max_sequence_idle_microseconds=1_000_000
    )


@pytest.mark.contract("C-25", "C-41")
def test_pinned_memory_is_used_by_default() -> None:
    off = Optimization(input_pinned_memory=PinnedMemory(enable=False))
    optimization = with_defaults(ModelConfig(optimization=off)).optimization
    assert optimization == replace(off, output_pinned_memory=PinnedMemory(enable=True))


# -- instances -----------------------------------------------------------------------------------


def _groups(config: ModelConfig, *gpus: int) -> tuple[InstanceGroup, ...]:
    return normalized(config, gpus).instance_group


CPU, GPU = InstanceKind.KIND_CPU, InstanceKind.KIND_GPU


def test_model_without_groups_has_one_with_its_own_name() -> None:
    assert _groups(ModelConfig("m")) == (InstanceGroup("m", CPU, 1),)


@pytest.mark.contract("C-29")
@pytest.mark.contract("I-05", "C-41")
def test_groups_are_numbered_where_they_have_no_name() -> None:
    groups = (InstanceGroup(kind=CPU), InstanceGroup("mine", CPU), InstanceGroup(kind=CPU))
    named = _groups(ModelConfig("m", instance_group=groups))
    assert [group.name for group in named] == ["m_0", "mine", "m_2"]


def test_count_that_is_none_becomes_one() -> None:
    groups = (InstanceGroup(kind=CPU, count=-1), InstanceGroup(kind=CPU, count=3))
    counted = _groups(ModelConfig("m", instance_group=groups))
    assert [group.count for group in counted] == [1, 3]


@pytest.mark.contract("I-01")
def test_onnx_models_have_two_instances_on_a_cpu() -> None:
    config = ModelConfig("m", backend="onnxruntime")
    assert _groups(config)[0].count == 2
    assert _groups(config, 0)[0].count == 1


@pytest.mark.parametrize(
    ("group", "gpus", "settled"),
    [
        (InstanceGroup(), (), (CPU, ())),
        (InstanceGroup(), (0, 1), (GPU, (0, 1))),
        (InstanceGroup(gpus=(1,)), (0, 1), (GPU, (1,))),
        (InstanceGroup(gpus=(2,)), (0, 1), (CPU, (2,))),
        (InstanceGroup(kind=GPU), (0, 1), (GPU, (0, 1))),
        (InstanceGroup(kind=GPU, gpus=(0,)), (), (GPU, (0,))),
        (InstanceGroup(kind=CPU), (0, 1), (CPU, ())),
        (InstanceGroup(kind=InstanceKind.KIND_MODEL), (0,), (InstanceKind.KIND_MODEL, ())),
    ],
)
@pytest.mark.contract("I-02")
def test_kind_is_settled_by_the_gpus_there_are(
    group: InstanceGroup, gpus: tuple[int, ...], settled: tuple[InstanceKind, tuple[int, ...]]
) -> None:
    (found,) = _groups(ModelConfig("m", instance_group=(group,)), *gpus)
    assert (found.kind, found.gpus) == settled


@pytest.mark.contract("I-02", "B-14")
@pytest.mark.parametrize("backend", ["fil", "openvino", "tensorflow"])
def test_engines_of_cpus_are_there_unless_a_gpu_is_named(backend: str) -> None:
    config = ModelConfig("m", backend=backend)
    assert _groups(config, 0, 1)[0].kind is CPU
    assert _groups(replace(config, instance_group=(InstanceGroup(kind=GPU),)), 0)[0].kind is GPU


def test_ensembles_have_neither_instances_nor_memory() -> None:
    config = normalized(ModelConfig("m", ensemble_scheduling=EnsembleScheduling()))
    assert config.instance_group == ()
    assert config.optimization is None


def test_what_is_normal_stays_so() -> None:
    config = normalized(ModelConfig("m", max_batch_size=8, dynamic_batching=DynamicBatching()))
    assert normalized(config) == config


# -- as recorded ---------------------------------------------------------------------------------

COMPLETED_BY_THE_MODEL = {
    "auto_batch",
    "auto_nobatch",
    "auto_no_backend_mbs",
    "auto_partial_io",
}
"""Models whose own code fills in their tensors, which the backend asks for."""

Recorded = list[tuple[str, str, dict[str, Any]]]


def _recorded(*, http: bool) -> Recorded:
    """Folder, model and answer of every configuration that was asked for."""
    found: Recorded = []
    for filename, folder in (
        ("model_configs.json", "good"),
        ("configs_that_loaded.json", "bad"),
        ("load_errors.json", "bad"),
    ):
        for question, answer in answers(filename).items():
            name, how, loaded = _asked(question)
            if name and name not in COMPLETED_BY_THE_MODEL and how is http and loaded:
                found.append((folder, name, answer))
    return found


def _asked(question: str) -> tuple[str, bool, bool]:
    match = re.fullmatch(r"(\w+) (http )?config|config (\w+)", question)
    if match is None:
        return "", False, False
    return match[1] or match[3], match[2] is not None, True


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("models")
    for which in ("good", "bad"):
        write_models(which, root / which)
    return root


def _effective(path: Path, name: str) -> ModelConfig:
    config = normalized(ModelRepository([path]).read(name).config)
    validate(config)
    return config


@pytest.mark.contract("C-41")
@needs_answers
@pytest.mark.parametrize(("folder", "name", "answer"), _recorded(http=False))
def test_config_is_the_recorded_one(
    models: Path, folder: str, name: str, answer: dict[str, Any]
) -> None:
    message = json_format.ParseDict(answer["response"]["config"], model_config_pb2.ModelConfig())
    expected = config_from_message(message)
    if expected.is_ensemble:  # decided by the ensemble's models
        expected = replace(expected, model_transaction_policy=None)
    assert _effective(models / folder, name) == expected


@needs_answers
@pytest.mark.parametrize(("folder", "name", "answer"), _recorded(http=True))
def test_config_as_json_is_the_recorded_one(
    models: Path, folder: str, name: str, answer: dict[str, Any]
) -> None:
    config, expected = _effective(models / folder, name), answer["reply"]
    if config.is_ensemble:  # decided by the ensemble's models
        config = replace(config, model_transaction_policy=TransactionPolicy())
    printed = config_to_json(config, with_defaults=True)
    printed.get("ensemble_scheduling", {}).pop("max_inflight_requests", None)  # younger field
    assert printed == expected
    assert list(printed) == list(expected)
