"""Which engine runs TensorFlow's models, parameters and signatures; all without TensorFlow."""

from __future__ import annotations

import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from backends.tensor_models import graphs
from penstock.core.backend import find_backend
from penstock.core.config import GraphOptimization, ModelConfig, Optimization
from penstock.core.errors import BackendNotInstalledError, ConfigError, ModelLoadError
from penstock.core.tensor import DataType
from penstock.models.loading.backends import backend_of
from penstock.testing import running
from penstock_backends.tensorflow import TensorFlowBackend
from penstock_backends.tensorflow.on_openvino import OpenVinoTensorFlowBackend
from penstock_backends.tensorflow.saved_model import message
from penstock_backends.tensorflow.settings import TensorFlowSettings

FP32, RESOURCE = 1, 20
SAVED = ModelConfig("m", backend="tensorflow", platform="tensorflow_savedmodel")


def given(**parameters: str) -> ModelConfig:
    return replace(SAVED, parameters=graphs.parameters(**parameters))


def tensor(name: str, *dims: int, kind: int = FP32, unknown_rank: bool = False) -> Any:
    shape = message("Shape")(
        dims=[message("Dim")(size=dim) for dim in dims], unknown_rank=unknown_rank
    )
    value = message("Tensor")(name=f"{name}:0", datatype=kind, shape=shape)
    return message("TensorEntry")(key=name, value=value)


def save(version: Path, *inputs: Any, name: str = "serving_default", tag: str = "serve") -> None:
    """A SavedModel of a signature with these inputs and the output `y`, and nothing behind it."""
    signature = message("Signature")(inputs=inputs, outputs=[tensor("y", -1, 3)])
    entries = [message("SignatureEntry")(key=name, value=signature)]
    graph = message("MetaGraph")(meta=message("MetaInfo")(tags=[tag]), signatures=entries)
    folder = version / "model.savedmodel"
    folder.mkdir()
    content = message("SavedModel")(graphs=[graph]).SerializeToString()
    (folder / "saved_model.pb").write_bytes(content)


# -- engines ---------------------------------------------------------------------------------------


@pytest.mark.contract("B-15")
def test_an_environment_with_tensorflow_is_used() -> None:
    found = backend_of(SAVED, {"python": "/opt/tensorflow/bin/python"})
    assert found.backend is TensorFlowBackend
    assert found.backend.traits.host == "process"


@pytest.mark.contract("B-15")
@pytest.mark.skipif(find_spec("tensorflow") is not None, reason="TensorFlow is installed")
def test_openvino_reads_the_models_where_tensorflow_is_not_installed() -> None:
    found = backend_of(SAVED, {})
    assert found.backend is OpenVinoTensorFlowBackend
    assert found.backend.traits.host == "thread"


@pytest.mark.contract("B-15")
def test_tensorflow_runs_the_models_where_it_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tensorflow").mkdir()
    (tmp_path / "tensorflow" / "__init__.py").write_text("raise AssertionError('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    assert backend_of(SAVED, {}).backend is TensorFlowBackend


async def test_a_missing_package_is_named(version: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(version, tensor("x", -1, 2))
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    with pytest.raises(
        BackendNotInstalledError, match=r"pip install 'penstock\[tensorflow\]', or name the Python"
    ):
        async with running(TensorFlowBackend, SAVED, version):
            pass


def test_it_is_found_by_its_name() -> None:
    assert find_backend("tensorflow") is TensorFlowBackend


# -- completion ------------------------------------------------------------------------------------


@pytest.mark.contract("AC-13")
async def test_a_signature_completes_the_configuration(version: Path) -> None:
    save(version, tensor("x", -1, 2), tensor("a", -1))
    completed = await TensorFlowBackend.complete_config(SAVED, version, {})
    assert completed.max_batch_size == 4
    assert [(one.name, one.data_type, one.dims) for one in completed.input] == [
        ("a", DataType.FP32, (1,)),
        ("x", DataType.FP32, (2,)),
    ]
    assert completed.input[0].reshape is not None
    assert completed.output == (graphs.tensor_out("y", DataType.FP32, 3),)


@pytest.mark.contract("AC-13")
async def test_a_network_of_others_is_completed(version: Path, basic_pitch: Path) -> None:
    (version / "model.savedmodel").symlink_to(basic_pitch / "nmp")
    settings = {"default-max-batch-size": "16"}
    completed = await TensorFlowBackend.complete_config(SAVED, version, settings)
    assert completed.max_batch_size == 16
    assert completed.input == (graphs.tensor_in("input_2", DataType.FP32, 43844, 1),)
    assert [(one.name, one.dims) for one in completed.output] == [
        ("contour", (172, 264)),
        ("note", (172, 88)),
        ("onset", (172, 88)),
    ]


@pytest.mark.contract("AC-13")
async def test_a_graphdef_completes_nothing(version: Path) -> None:
    bare = replace(SAVED, platform="tensorflow_graphdef")
    assert await TensorFlowBackend.complete_config(bare, version, {}) is bare


@pytest.mark.contract("AC-13")
async def test_a_signature_of_another_name_is_taken_with_a_warning(
    version: Path, caplog: pytest.LogCaptureFixture
) -> None:
    save(version, tensor("x", -1, 2), name="predict")
    completed = await TensorFlowBackend.complete_config(SAVED, version, {})
    assert completed.input[0].name == "x"
    assert (
        "unable to find default serving signature 'serving_default', using signature 'predict'"
        in caplog.text
    )


@pytest.mark.contract("AC-13", "B-15")
@pytest.mark.parametrize(
    ("tensors", "saved", "config", "text"),
    [
        (
            [tensor("x", 1, 2)],
            {},
            replace(SAVED, max_batch_size=8),
            "unable to autofill for 'm', configuration specified max-batch 8 but model signature"
            " does not support batching",
        ),
        (
            [tensor("x")],
            {},
            SAVED,
            "unable to autofill for 'm': the rank of model tensor 'x' is 0 which is not supported",
        ),
        (
            [tensor("x", -1, kind=RESOURCE)],
            {},
            SAVED,
            "unable to process input 'x' for 'm', unsupported datatype 'DT_RESOURCE'",
        ),
        ([], {"tag": "train"}, SAVED, "unable to load model 'm', expected 'serve' tag"),
        (
            [],
            {"name": "__saved_model_init_op"},
            SAVED,
            "unable to load model 'm', expected 'serving_default' signature",
        ),
    ],
)
async def test_what_a_signature_does_not_say_is_refused(
    version: Path, tensors: list[Any], saved: dict[str, str], config: ModelConfig, text: str
) -> None:
    save(version, *tensors, **saved)
    with pytest.raises(ModelLoadError) as refused:
        await TensorFlowBackend.complete_config(config, version, {})
    assert refused.value.message.startswith(text)


@pytest.mark.parametrize("content", [None, b"\x0a\xff\xff\xff\xff\x0f", b"no model"])
async def test_a_folder_that_is_no_savedmodel_is_refused(
    version: Path, content: bytes | None
) -> None:
    folder = version / "model.savedmodel"
    folder.mkdir()
    if content is not None:
        (folder / "saved_model.pb").write_bytes(content)
    with pytest.raises(ModelLoadError, match=r"failed to load model 'm': cannot read '.*\.pb'"):
        await TensorFlowBackend.complete_config(SAVED, version, {})


# -- parameters ------------------------------------------------------------------------------------


@pytest.mark.contract("B-15")
def test_parameters_are_those_of_triton() -> None:
    config = given(
        TF_NUM_INTRA_THREADS="3",
        TF_NUM_INTER_THREADS="2",
        TF_USE_PER_SESSION_THREADS="On",
        TF_GRAPH_TAG="serve1",
        TF_SIGNATURE_DEF="serving2",
        TF_INIT_OPS_FILE="init_ops.json",
    )
    config = replace(config, optimization=Optimization(graph=GraphOptimization(level=5)))
    settings = {"allow-soft-placement": "false", "gpu-memory-fraction": "0.5"}
    assert TensorFlowSettings.from_config(config, settings) == TensorFlowSettings(
        threads=3,
        operators=2,
        own_threads=True,
        tag="serve1",
        signature="serving2",
        init_ops_file="init_ops.json",
        xla=2,
        soft_placement=False,
        memory_fraction=0.5,
    )


@pytest.mark.contract("B-15")
@pytest.mark.parametrize("kind", [TensorFlowBackend, OpenVinoTensorFlowBackend])
@pytest.mark.parametrize(
    ("name", "value", "what"),
    [
        ("TF_NUM_INTRA_THREADS", "-1", "non-negative"),
        ("TF_NUM_INTER_THREADS", "few", "non-negative"),
        ("MAX_SESSION_SHARE_COUNT", "0", "positive"),
    ],
)
def test_numbers_are_numbers(kind: Any, name: str, value: str, what: str) -> None:
    with pytest.raises(ConfigError) as refused:
        kind.check_config(given(**{name: value}))
    assert refused.value.message == (
        f"parameter '{name}' must be {what} number for TensorFlow model 'm'"
    )


def test_a_fraction_of_memory_is_one() -> None:
    with pytest.raises(ConfigError, match="gpu-memory-fraction must be a number from 0 to 1: '2'"):
        TensorFlowSettings.from_config(SAVED, {"gpu-memory-fraction": "2"})


def test_sessions_that_cannot_be_shared_are_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    TensorFlowBackend.check_config(given(MAX_SESSION_SHARE_COUNT="2"))
    assert "'MAX_SESSION_SHARE_COUNT' has no effect, as each instance is a process" in caplog.text
