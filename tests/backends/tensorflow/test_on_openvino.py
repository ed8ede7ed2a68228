"""TensorFlow's models on OpenVINO, where TensorFlow is not there."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from backends.conftest import OpenInstance
from backends.openvino import toys
from backends.tensor_models import graphs
from penstock.core.config import ModelConfig
from penstock.core.errors import ConfigError, ModelLoadError
from penstock.core.tensor import DataType
from penstock_backends.tensorflow.on_openvino import OpenVinoTensorFlowBackend

pytest.importorskip("openvino", reason="OpenVINO is not installed")

GRAPHDEF = replace(
    toys.config(),
    backend="tensorflow",
    platform="tensorflow_graphdef",
    default_model_filename="model.graphdef",
)
SAVED = ModelConfig(
    name="pitch",
    backend="tensorflow",
    platform="tensorflow_savedmodel",
    default_model_filename="model.savedmodel",
)


@pytest.mark.contract("AC-13")
async def test_a_signature_completes_the_configuration(version: Path, basic_pitch: Path) -> None:
    shutil.copytree(basic_pitch / "nmp", version / "model.savedmodel")
    completed = await OpenVinoTensorFlowBackend.complete_config(SAVED, version, {})
    assert completed.max_batch_size == 4
    assert completed.input == (graphs.tensor_in("input_2", DataType.FP32, 43844, 1),)
    assert [(t.name, t.dims) for t in completed.output] == [
        ("contour", (172, 264)),
        ("note", (172, 88)),
        ("onset", (172, 88)),
    ]


@pytest.mark.contract("B-15")
async def test_a_graphdef_has_names_without_numbers(
    open_instance: OpenInstance, version: Path
) -> None:
    toys.save_graphdef(version / "model.graphdef")
    backend = await open_instance(OpenVinoTensorFlowBackend, GRAPHDEF)
    (outcome,) = await backend.execute([graphs.request(x=np.ones((3, 2), np.float32))])
    assert_array_equal(graphs.tensor(outcome, "y").numpy(), np.full((3, 2), 2, np.float32))


@pytest.mark.contract("AC-13")
async def test_a_graphdef_completes_nothing(version: Path) -> None:
    toys.save_graphdef(version / "model.graphdef")
    bare = replace(GRAPHDEF, input=(), output=())
    assert await OpenVinoTensorFlowBackend.complete_config(bare, version, {}) == bare


@pytest.mark.contract("AC-13")
async def test_a_signature_without_a_batch_is_not_given_one(version: Path) -> None:
    toys.save_double(version / "model.xml", (1, 2))
    config = ModelConfig("m", default_model_filename="model.xml", max_batch_size=2)
    with pytest.raises(ModelLoadError) as refused:
        await OpenVinoTensorFlowBackend.complete_config(config, version, {})
    assert refused.value.message == (
        "unable to autofill for 'm', configuration specified max-batch 2 but model signature does"
        " not support batching"
    )


@pytest.mark.contract("B-15")
@pytest.mark.parametrize(
    ("operator", "kind", "text"),
    [
        # The second, once something in this process has imported openvino_tokenizers.
        ("StringLower", "DT_STRING", "(No conversion rule .*: StringLower|is of type string)"),
        ("NoSuchOperator", "DT_FLOAT", "NoSuchOperator"),
    ],
)
async def test_what_only_tensorflow_can_run_is_refused_with_the_way_to_it(
    open_instance: OpenInstance, version: Path, operator: str, kind: str, text: str
) -> None:
    toys.save_graphdef(version / "model.graphdef", operator, kind)
    with pytest.raises(ModelLoadError, match=f"{text}.*pip install tensorflow-cpu"):
        await open_instance(OpenVinoTensorFlowBackend, GRAPHDEF)


@pytest.mark.contract("B-15")
@pytest.mark.parametrize(
    ("name", "value"),
    [("TF_SIGNATURE_DEF", "other"), ("TF_GRAPH_TAG", "train"), ("TF_INIT_OPS_FILE", "init.json")],
)
def test_what_cannot_be_chosen_is_refused(name: str, value: str) -> None:
    config = replace(GRAPHDEF, parameters=graphs.parameters(**{name: value}))
    with pytest.raises(ConfigError, match=f"'{name}'.*pip install tensorflow-cpu"):
        OpenVinoTensorFlowBackend.check_config(config)


@pytest.mark.contract("B-15")
def test_threads_are_those_of_tensorflows_parameter() -> None:
    given = graphs.parameters(
        TF_NUM_INTRA_THREADS="3", TF_NUM_INTER_THREADS="2", TF_SIGNATURE_DEF="serving_default"
    )
    config = replace(GRAPHDEF, parameters=given)
    OpenVinoTensorFlowBackend.check_config(config)
    assert OpenVinoTensorFlowBackend.settings(config).properties["INFERENCE_NUM_THREADS"] == "3"


async def test_a_savedmodel_that_cannot_be_completed_says_the_way_out(version: Path) -> None:
    (version / "model.savedmodel").mkdir()
    with pytest.raises(ModelLoadError, match=r"'pitch': openvino error.*pip install tensorflow"):
        await OpenVinoTensorFlowBackend.complete_config(SAVED, version, {})


async def test_a_truncated_savedmodel_is_refused(
    open_instance: OpenInstance, version: Path, basic_pitch: Path
) -> None:
    shutil.copytree(basic_pitch / "nmp", version / "model.savedmodel")
    file = version / "model.savedmodel" / "saved_model.pb"
    file.write_bytes(file.read_bytes()[:1000])
    config = replace(GRAPHDEF, default_model_filename="model.savedmodel")
    with pytest.raises(ModelLoadError, match="failed to load model 'double'"):
        await open_instance(OpenVinoTensorFlowBackend, config)
