"""Features and classes of forests, read without treelite by `penstock check`: those of the load."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from backends.conftest import OpenInstance
from backends.fil import forests
from penstock.core.config import ModelConfig
from penstock.core.errors import ModelLoadError
from penstock_backends.fil import FilBackend
from penstock_backends.fil.settings import FILES

_TYPES = ("xgboost_json", "xgboost_ubj", "lightgbm")
_WIDTHS = {"binary": 1, "multiclass": 3, "regression": 1}


def _write(version: Path, model_type: str, rows: Any, kind: str) -> Path:
    path = version / FILES[model_type]
    framework = forests.lightgbm if model_type == "lightgbm" else forests.xgboost
    framework(rows, kind, path)
    return path


def _config(
    model_type: str, width: int = 1, features: int = 5, classifier: str = "false", **given: str
) -> ModelConfig:
    return forests.config(width, features, model_type=model_type, is_classifier=classifier, **given)


@pytest.mark.parametrize("model_type", _TYPES)
@pytest.mark.parametrize("kind", forests.KINDS)
def test_a_file_with_the_tensors_of_the_configuration_is_fine(
    version: Path, rows: Any, model_type: str, kind: str
) -> None:
    _write(version, model_type, rows, kind)
    FilBackend.check_files(_config(model_type, _WIDTHS[kind]), version, {})


@pytest.mark.parametrize("model_type", _TYPES)
@pytest.mark.parametrize(("width", "features"), [(1, 4), (1, 6), (4, 5)])
async def test_other_tensors_are_refused_in_the_words_of_the_load(
    open_backend: OpenInstance, version: Path, rows: Any, model_type: str, width: int, features: int
) -> None:
    _write(version, model_type, rows, "binary")
    config = _config(model_type, width, features)
    with pytest.raises(ModelLoadError) as found:
        FilBackend.check_files(config, version, {})
    with pytest.raises(ModelLoadError) as told:
        await open_backend(config)
    assert found.value.message == told.value.message


def test_two_probabilities_of_one_are_fine(version: Path, rows: Any) -> None:
    _write(version, "lightgbm", rows, "binary")
    both = _config("lightgbm", 2, classifier="true", predict_proba="true")
    FilBackend.check_files(both, version, {})
    with pytest.raises(ModelLoadError, match="the model expects shape"):
        FilBackend.check_files(_config("lightgbm", 2, classifier="true"), version, {})


@pytest.mark.parametrize("model_type", _TYPES)
def test_nothing_is_known_of_a_part_of_a_file(version: Path, rows: Any, model_type: str) -> None:
    path = _write(version, model_type, rows, "multiclass")
    whole = path.read_bytes()
    for part in (b"", whole[40:] if model_type == "lightgbm" else whole[: len(whole) // 2]):
        path.write_bytes(part)
        FilBackend.check_files(_config(model_type, 9, 9), version, {})


def test_a_text_in_the_file_is_no_number_of_features(version: Path, rows: Any) -> None:
    path = _write(version, "xgboost_json", rows, "binary")
    found = json.loads(path.read_bytes())
    found["learner"]["attributes"] = {"note": '"learner_model_param":{"num_feature":"9"}'}
    path.write_text(json.dumps(found, indent=1))
    FilBackend.check_files(_config("xgboost_json"), version, {})


@pytest.mark.parametrize("number", ['"x"', "5", '""', '"99999999999"', "null", "[]"])
def test_a_number_of_another_form_is_left_to_treelite(
    version: Path, rows: Any, number: str
) -> None:
    path = _write(version, "xgboost_json", rows, "binary")
    head, behind = path.read_text().rsplit('"num_feature":"5"', 1)
    path.write_text(f'{head}"num_feature":{number}{behind}')
    FilBackend.check_files(_config("xgboost_json", 1, 9), version, {})


def test_other_formats_are_left_to_treelite(version: Path) -> None:
    for model_type in ("xgboost", "treelite_checkpoint"):
        (version / FILES[model_type]).write_bytes(b"tree\nmax_feature_idx=3\nnum_class=1\n")
        FilBackend.check_files(_config(model_type), version, {})
