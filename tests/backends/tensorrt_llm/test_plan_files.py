"""Plans of TensorRT where an engine of TensorRT-LLM is looked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.outcomes import raises_nothing
from penstock.core.config import ModelConfig, Parameter
from penstock.core.errors import ModelLoadError
from penstock_backends.tensorrt_llm.layout import read_layout_settings
from penstock_backends.tensorrt_llm.plan_files import refuse_plans
from penstock_backends.tensorrt_llm.settings import read_settings

_PLAN = b"ftrt" + bytes(60)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A version's folder with a plan, whatever its name."""
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "rank0.engine").write_bytes(_PLAN)
    return tmp_path / "1"


def test_a_plan_in_the_place_of_settings_is_told(folder: Path) -> None:
    with pytest.raises(ModelLoadError, match="is a plan of TensorRT, not an engine of TensorRT-LL"):
        read_settings(folder)


@pytest.mark.parametrize("named", [".", "rank0.engine"])
def test_a_plan_that_settings_name_is_told(folder: Path, named: str) -> None:
    (folder / "model.yaml").write_text(f"model: {named}")
    with pytest.raises(ModelLoadError, match=f"'{folder}.*rank0.engine' is a plan of TensorRT"):
        read_settings(folder)


def test_a_plan_that_a_parameter_names_is_told(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "2").mkdir()
    config = ModelConfig(name="m", parameters={"gpt_model_path": Parameter(str(folder))})
    with pytest.raises(ModelLoadError, match="or run the plan with tensorrt in a model"):
        read_layout_settings(config, tmp_path / "2")


def test_a_plan_where_nothing_names_an_engine_is_told(folder: Path) -> None:
    with pytest.raises(ModelLoadError, match=f"'{folder}.*rank0.engine' is a plan of TensorRT"):
        read_layout_settings(ModelConfig(name="m"), folder)


@pytest.mark.parametrize("text", ['{"pretrained_config": {}}', '{"builder_config": {}}'])
def test_an_engine_of_tensorrt_llm_is_none(folder: Path, text: str) -> None:
    (folder / "config.json").write_text(text)
    with raises_nothing():
        refuse_plans(folder)


@pytest.mark.parametrize("text", ["{}", "7", "nonsense"])
def test_another_configuration_beside_a_plan_changes_nothing(folder: Path, text: str) -> None:
    (folder / "config.json").write_text(text)
    with pytest.raises(ModelLoadError, match="is a plan of TensorRT"):
        refuse_plans(folder)


def test_other_files_and_names_of_models_are_none(folder: Path) -> None:
    (folder / "rank0.engine").write_bytes(b"")
    with raises_nothing():
        refuse_plans(folder)
        refuse_plans(Path("org/model"))
