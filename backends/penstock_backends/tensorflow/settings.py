"""`TensorFlowSettings`: how a session is made, from a model's parameters (contract B-15)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.backend import ConfigError, ModelConfig, share_of_cores

GRAPHDEF = "tensorflow_graphdef"
"""The platform of a frozen graph, which does not say which of its tensors are meant."""

TAG, SIGNATURE = "serve", "serving_default"
"""The tag and the signature of a SavedModel unless the parameters name others."""

_TRUE = ("true", "on", "1")


@dataclass(frozen=True, slots=True)
class TensorFlowSettings:
    """Threads, the part of the file that is served, and switches of TensorFlow."""

    threads: int = 1
    """Threads of one operator."""
    operators: int = 0
    """Operators beside each other; 0 leaves it to TensorFlow."""
    own_threads: bool = False
    """Whether the session has threads of its own."""
    tag: str = TAG
    signature: str = SIGNATURE
    init_ops_file: str = ""
    """A file of JSON with the operators that run once, before all else."""
    xla: int = 0
    """XLA as TensorFlow numbers it: -1 off, 1 and 2 on; 0 leaves it to TensorFlow."""
    soft_placement: bool = True
    """Whether operators that a GPU does not have run on the CPU."""
    memory_fraction: float = 0.0
    """The part of a GPU's memory that is taken at once; 0 for as it is needed."""

    @classmethod
    def from_config(
        cls, config: ModelConfig, settings: Mapping[str, str], host_policy: str = "cpu"
    ) -> TensorFlowSettings:
        """Parse parameters and backend settings; raises `ConfigError`."""
        number(config, "MAX_SESSION_SHARE_COUNT", 1)
        graph = config.optimization.graph if config.optimization else None
        per_session = (config.parameter("TF_USE_PER_SESSION_THREADS") or "").lower()
        return cls(
            threads=number(config, "TF_NUM_INTRA_THREADS") or share_of_cores(config, host_policy),
            operators=number(config, "TF_NUM_INTER_THREADS"),
            own_threads=per_session in _TRUE,
            tag=config.parameter("TF_GRAPH_TAG") or TAG,
            signature=config.parameter("TF_SIGNATURE_DEF") or SIGNATURE,
            init_ops_file=config.parameter("TF_INIT_OPS_FILE") or "",
            xla=max(-1, min(graph.level, 2)) if graph else 0,
            soft_placement=settings.get("allow-soft-placement", "true").lower() in _TRUE,
            memory_fraction=_fraction(settings),
        )


def number(config: ModelConfig, name: str, least: int = 0) -> int:
    """A parameter that is a whole number, 0 without it; raises `ConfigError` with Triton's text."""
    text = config.parameter(name) or ""
    if text and (not text.isdecimal() or int(text) < least):
        raise ConfigError(
            f"parameter '{name}' must be {'positive' if least else 'non-negative'} number for"
            f" TensorFlow model '{config.name}'"
        )
    return int(text or 0)


def _fraction(settings: Mapping[str, str]) -> float:
    text = settings.get("gpu-memory-fraction", "0")
    try:
        fraction = float(text)
    except ValueError:
        fraction = -1.0
    if not 0.0 <= fraction <= 1.0:
        raise ConfigError(
            f"backend-config gpu-memory-fraction must be a number from 0 to 1: '{text}'"
        )
    return fraction
