"""The parameter of a model that has it unloaded when its engine is not healthy (VL-16)."""

from __future__ import annotations

from typing import Final

from penstock.backend import ModelConfig

PARAMETER: Final = "ENABLE_VLLM_HEALTH_CHECK"


def unloads_unhealthy(config: ModelConfig) -> bool:
    """Whether the model is unloaded then, as by Triton's backend; else its process is restarted."""
    return (config.parameter(PARAMETER) or "").lower() == "true"
