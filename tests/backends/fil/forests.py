"""Forests of XGBoost and LightGBM, trained in a moment, and their configurations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from backends.tensor_models.graphs import parameters, tensor_in, tensor_out
from penstock.core.config import ModelConfig
from penstock.core.tensor import DataType

KINDS = ("binary", "multiclass", "regression")
_XGBOOST = {"binary": "binary:logistic", "multiclass": "multi:softprob"}


def labels(rows: Any, kind: str) -> Any:
    """What a forest learns of rows, by their first two features."""
    total = rows[:, 0] + rows[:, 1]
    if kind == "binary":
        return (total > 0).astype(int)
    return np.digitize(total, [-0.7, 0.7]) if kind == "multiclass" else total


def lightgbm(rows: Any, kind: str, path: Path | None = None) -> Any:
    """A forest of LightGBM; saved at `path`."""
    framework = pytest.importorskip("lightgbm", reason="LightGBM is not installed")
    given = {"objective": kind, "verbose": -1, "num_threads": 1}
    if kind == "multiclass":
        given["num_class"] = 3
    made = framework.train(given, framework.Dataset(rows, labels(rows, kind)), 8)
    if path is not None:
        made.save_model(str(path))
    return made


def xgboost(rows: Any, kind: str, path: Path | None = None) -> Any:
    """A forest of XGBoost, as a function of rows; saved at `path`, by its ending."""
    framework = pytest.importorskip(
        "xgboost", reason="XGBoost is not installed: pip install xgboost-cpu"
    )
    given: dict[str, Any] = {"objective": _XGBOOST.get(kind, "reg:squarederror"), "nthread": 1}
    if kind == "multiclass":
        given["num_class"] = 3
    made = framework.train(given, framework.DMatrix(rows, labels(rows, kind)), 8)
    if path is not None:
        made.save_model(str(path))
    return lambda some, **options: made.predict(framework.DMatrix(some), **options)


def config(width: int = 1, features: int = 5, **given: Any) -> ModelConfig:
    """The configuration of a forest, whose answers have so many elements."""
    return ModelConfig(
        name="trees",
        backend="fil",
        max_batch_size=4096,
        input=(tensor_in("input__0", DataType.FP32, features),),
        output=(tensor_out("output__0", DataType.FP32, width),),
        parameters=parameters(**given),
    )
