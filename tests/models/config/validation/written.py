"""Configurations as they are written, and why they are refused."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.core.config import ModelConfig, config_from_json
from penstock.core.errors import ConfigError
from penstock.models.config.validation import validate

CPU = [{"name": "m_0", "kind": "KIND_CPU", "count": 1}]
TENSOR = {"name": "A", "data_type": "TYPE_FP32", "dims": [4]}


def configured(**written: Any) -> ModelConfig:
    """A configuration that is right, apart from what is written."""
    base = {
        "name": "m",
        "backend": "identity",
        "version_policy": {"latest": {"num_versions": 1}},
        "max_batch_size": 8,
        "input": [TENSOR],
        "output": [TENSOR],
        "instance_group": CPU,
    }
    return config_from_json({**base, **written})


def refusal(config: ModelConfig, gpus: tuple[int, ...] = ()) -> str:
    with pytest.raises(ConfigError) as refused:
        validate(config, gpus)
    return str(refused.value)
