"""`model.yaml`, its variables, and the environment that an engine starts in."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from backends.tensorrt_llm.conftest import WriteModel
from penstock.core.backend import InstanceContext
from penstock.core.config import InstanceGroup, InstanceKind, ModelConfig, Parameter
from penstock.core.errors import InvalidRequestError, ModelLoadError
from penstock_backends.tensorrt_llm import TensorRtLlmBackend
from penstock_backends.tensorrt_llm.environment import leave_job, pin_devices
from penstock_backends.tensorrt_llm.logits_processors import LogitsProcessors
from penstock_backends.tensorrt_llm.parameter_text import as_bool, read_parameter
from penstock_backends.tensorrt_llm.settings import EngineSettings, read_settings, settings_path


@pytest.mark.contract("TL-02")
def test_arguments_and_the_servers_part_are_told_apart(version: WriteModel) -> None:
    folder = version(
        "model: TinyLlama/TinyLlama-1.1B-Chat-v1.0\ntensor_parallel_size: 2\n"
        "kv_cache_config: {free_gpu_memory_fraction: 0.5}\n"
        "logits_post_processors: {a: 'm:p'}\n"
        "triton_config: {max_batch_size: 0, decoupled: True, cancellation_check_period_ms: 50,"
        " stats_check_period_ms: 250, multimodal: true}\n"
    )
    settings = read_settings(folder)
    assert settings.values == {
        "model": "TinyLlama/TinyLlama-1.1B-Chat-v1.0",
        "tensor_parallel_size": 2,
        "kv_cache_config": {"free_gpu_memory_fraction": 0.5},
    }
    assert (settings.decoupled, settings.multimodal, settings.stats_seconds) == (True, True, 0.25)
    assert settings.processors == {"a": "m:p"}
    assert settings.devices == 2


@pytest.mark.contract("TL-02", "EV-13")
def test_a_variable_names_another_file(
    version: WriteModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = version("model: one")
    (folder / "small.yaml").write_text("model: small")
    (tmp_path / "else.yaml").write_text("model: elsewhere")
    assert read_settings(folder).values["model"] == "one"
    monkeypatch.setenv("LLM_CONFIG_PATH", "small.yaml")
    assert read_settings(folder).values["model"] == "small"
    monkeypatch.setenv("LLM_CONFIG_PATH", str(tmp_path / "else.yaml"))
    assert read_settings(folder).values["model"] == "elsewhere"
    monkeypatch.setenv("LLM_CONFIG_PATH", "none.yaml")
    with pytest.raises(ModelLoadError) as refused:
        read_settings(folder)
    assert refused.value.message == (
        f"'none.yaml' containing TRT-LLM engine args not found in '{folder}'"
    )


@pytest.mark.contract("EV-13")
def test_the_mode_of_an_orchestrator_changes_no_setting(
    version: WriteModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = version("model: one\ntensor_parallel_size: 2")
    without = read_settings(folder)
    monkeypatch.setenv("TRTLLM_ORCHESTRATOR", "1")
    assert (read_settings(folder), read_settings(folder).devices) == (without, 2)


def test_json_will_do(tmp_path: Path) -> None:
    (tmp_path / "model.json").write_text(json.dumps({"model": "m", "max_seq_len": 7}))
    assert read_settings(tmp_path).values == {"model": "m", "max_seq_len": 7}
    assert settings_path(tmp_path, {}).name == "model.json"


def test_comments_need_not_be_utf8(version: WriteModel) -> None:
    folder = version("")
    (folder / "model.yaml").write_bytes(b"# f\xfcr\nmodel: one\n")
    assert read_settings(folder).values == {"model": "one"}


def test_paths_in_the_version_directory_are_resolved(version: WriteModel) -> None:
    folder = version("model: weights\ntokenizer: some/name")
    (folder / "weights").mkdir()
    settings = read_settings(folder)
    assert settings.values == {"model": str(folder / "weights"), "tokenizer": "some/name"}
    assert settings.model == "weights"


@pytest.mark.contract("TL-35", "TL-33")
def test_variables_of_a_template_are_not_set(version: WriteModel) -> None:
    text = 'model: m\ntokenizer: ""\ndtype: ${dtype}\ntriton_config: {decoupled: "1"}'
    settings = read_settings(version(text))
    assert settings.values == {"model": "m"}
    assert settings.decoupled is True
    text = "model: m\ntriton_config: {decoupled: '${decoupled}', max_batch_size: ''}"
    assert read_settings(version(text)).decoupled is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("- a", "must hold a mapping"),
        ("{", "Failed to parse YAML engine config"),
        ("dtype: auto", "must say which 'model'"),
        ("model: m\ntriton_config: 3", "'triton_config' in"),
        ("model: m\ntriton_config: {decoupld: true}", "'decoupld' .*; did you mean 'decoupled'"),
        (
            "model: m\ntriton_config: {max_batch_size: many}",
            "'max_batch_size' .* a number of 0 or more, not",
        ),
        ("model: m\ntriton_config: {stats_check_period_ms: -5}", "a number of 0 or more, not -5"),
        (
            "model: m\ntriton_config: {stats_check_period_ms: .nan}",
            "a number of 0 or more, not nan",
        ),
        ("model: m\nlogits_post_processors: x", "must be a mapping of name ->"),
    ],
)
def test_a_file_of_another_form_is_refused(version: WriteModel, text: str, reason: str) -> None:
    with pytest.raises(ModelLoadError, match=reason):
        read_settings(version(text))


@pytest.mark.contract("TL-35")
@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("", int, None),
        ("${count}", int, None),
        ("3", int, 3),
        ("x", int, None),
        ("True", as_bool, True),
        ("1", as_bool, True),
        ("yes", as_bool, False),
        ("0.5", float, 0.5),
    ],
)
def test_parameters_are_text(text: str, kind: Callable[[str], Any], value: Any) -> None:
    config = ModelConfig("m", parameters={"name": Parameter(text)})
    assert read_parameter(config, "name", kind) == value
    assert read_parameter(config, "other", kind) is None


async def test_the_configuration_is_completed(version: WriteModel) -> None:
    folder = version("model: m\ntriton_config: {decoupled: true}")
    config = await TensorRtLlmBackend.complete_config(ModelConfig("m"), folder, {})
    assert config.decoupled
    assert len(config.input) == 23
    assert len(config.output) == 16
    assert config.input[0].name == "text_input"
    assert [group.kind for group in config.instance_group] == [InstanceKind.KIND_CPU]


@pytest.mark.contract("AC-11")
async def test_size_of_batches_and_decoupling_are_those_of_the_file(version: WriteModel) -> None:
    """Which names them beside the engine's arguments; what `config.pbtxt` says comes first."""
    folder = version("model: m\ntriton_config: {max_batch_size: 4, decoupled: true}")
    config = await TensorRtLlmBackend.complete_config(ModelConfig("m"), folder, {})
    assert (config.max_batch_size, config.decoupled) == (4, True)
    given = ModelConfig("m", max_batch_size=8)
    assert (await TensorRtLlmBackend.complete_config(given, folder, {})).max_batch_size == 8
    bare = await TensorRtLlmBackend.complete_config(ModelConfig("m"), version("model: m"), {})
    assert (bare.max_batch_size, bare.decoupled) == (0, False)


def test_the_servers_mpi_job_is_left() -> None:
    environment = {
        "OMPI_COMM_WORLD_RANK": "0",
        "OMPI_UNIVERSE_SIZE": "1",
        "PMIX_RANK": "0",
        "PMI_SIZE": "1",
        "ORTE_x": "",
        "OMPI_MCA_orte_x": "",
        "OMPI_MCA_btl": "self",
        "PMIX_MCA_gds": "hash",
        "PATH": "/bin",
    }
    leave_job(environment)
    assert environment == {"OMPI_MCA_btl": "self", "PMIX_MCA_gds": "hash", "PATH": "/bin"}


def context(count: int = 1, name: str = "m_0", gpus: str = "", **fields: Any) -> InstanceContext:
    parameters = {"gpu_device_ids": Parameter(gpus)} if gpus else {}
    group = InstanceGroup(kind=InstanceKind.KIND_CPU, count=count)
    config = ModelConfig("m", instance_group=(group,), parameters=parameters)
    run: Any = None
    return InstanceContext(name, config, 1, Path(), run, **fields)


def settings(**values: Any) -> EngineSettings:
    return EngineSettings({"model": "m", **values}, Path("model.yaml"))


@pytest.mark.contract("TL-08")
@pytest.mark.parametrize(
    ("name", "visible", "number"), [("m_0", "0,1", 2), ("m_0_1", "2,3", 2), ("m_2", "5", 1)]
)
def test_each_instance_has_its_gpus(name: str, visible: str, number: int) -> None:
    environment: dict[str, str] = {}
    given = settings()
    pin_devices(given, context(3, name, "0,1; 2,3 ;5"), environment)
    assert environment == {"CUDA_VISIBLE_DEVICES": visible, "TRTLLM_VISIBLE_DEVICES": visible}
    assert given.values["gpus_per_node"] == number


@pytest.mark.contract("TL-08")
@pytest.mark.parametrize(
    ("gpus", "reason"),
    [
        ("", "gpu_device_ids parameter required when instance count > 1"),
        ("${gpus}", "gpu_device_ids parameter required when instance count > 1"),
        ("0,1", "gpu_device_ids mismatch: instance 1 >= 1 entries"),
        ("0;a", "must be numbers"),
        ("0;", "must be numbers"),
    ],
)
def test_instances_without_gpus_are_refused(gpus: str, reason: str) -> None:
    with pytest.raises(ModelLoadError, match=reason):
        pin_devices(settings(), context(2, "m_1", gpus), {})


def test_a_gpu_instance_sees_its_device_only() -> None:
    environment = {"CUDA_VISIBLE_DEVICES": "4,7"}
    pin_devices(settings(), context(kind="KIND_GPU", device_id=1), environment)
    assert environment == {"CUDA_VISIBLE_DEVICES": "7"}
    with pytest.raises(ModelLoadError, match="no GPU 1"):
        pin_devices(settings(), context(kind="KIND_GPU", device_id=1), environment)
    with pytest.raises(ModelLoadError, match="KIND_GPU is for models on one GPU"):
        pin_devices(settings(tensor_parallel_size=2), context(kind="KIND_GPU"), {})
    alone: dict[str, str] = {}
    pin_devices(settings(), context(), alone)
    assert alone == {}


class Processor:
    def __call__(self) -> None:
        """Do nothing."""


@pytest.fixture
def processors(monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = ModuleType("some_processors")
    module.Made, module.ready, module.number = Processor, Processor(), 3
    module.local = lambda: None
    monkeypatch.setitem(sys.modules, "some_processors", module)


@pytest.mark.usefixtures("processors")
@pytest.mark.contract("TL-03")
def test_processors_are_found_by_name() -> None:
    found = LogitsProcessors({"made": "some_processors:Made", "ready": "some_processors:ready"})
    assert isinstance(found.find("made"), Processor)
    assert isinstance(found.find("ready"), Processor)
    assert found.find("") is None
    with pytest.raises(InvalidRequestError, match=r"Available: \['made', 'ready'\]"):
        found.find("x")


@pytest.mark.usefixtures("processors")
@pytest.mark.parametrize(
    ("specification", "reason"),
    [
        ("some_processors", "must be an import spec of the form 'module.path:attribute'"),
        (3, "must be an import spec"),
        ("some_processors:a..b", "must be an import spec"),
        ("no_such_module:a", "cannot import module 'no_such_module'"),
        ("some_processors:a.b", "has no attribute 'a.b'"),
        ("some_processors:number", "resolved to a non-callable int"),
        ("some_processors:local", "processor is not picklable"),
    ],
)
def test_processors_that_cannot_be_used_are_refused(specification: Any, reason: str) -> None:
    with pytest.raises(ModelLoadError, match=reason) as refused:
        LogitsProcessors({"p": specification})
    assert refused.value.message.startswith("logits_post_processors['p']")
