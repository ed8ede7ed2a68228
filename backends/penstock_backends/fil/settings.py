"""`FilSettings`: how a forest answers, from its parameters (contract B-16)."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from penstock.backend import ConfigError, ModelConfig, share_of_cores

logger = logging.getLogger(__name__)

FILES = {
    "xgboost": "xgboost.model",
    "xgboost_json": "xgboost.json",
    "xgboost_ubj": "xgboost.ubj",
    "lightgbm": "model.txt",
    "treelite_checkpoint": "checkpoint.tl",
}
"""The formats, and the file of each unless the configuration names another."""

COMPILE = "penstock.compile_trees"
"""Parameter of a model: whether its trees become machine code when it is loaded."""

_REMOVED = {
    "output_class": "Use `is_classifier` instead.",
    "algo": "Use `layout` instead.",
    "threads_per_tree": "Use `chunk_size` instead.",
    "storage_type": "It is chosen automatically.",
    "blocks_per_sm": "Use `chunk_size` instead.",
}
"""Parameters of older releases, and what stands in their place."""

_FLAGS = {"true": True, "1": True, "false": False, "0": False}


@dataclass(frozen=True, slots=True)
class FilSettings:
    """The format of a forest's file, and the form of its answers.

    A classifier answers with the class, or with probabilities; where there is one probability,
    the class is 1 above the threshold.
    """

    model_type: str
    is_classifier: bool
    predict_proba: bool = False
    threshold: float = 0.5
    allow_unknown_field: bool = False
    threads: int = 1
    compiles: bool = False
    """Whether the trees become machine code, by a C compiler, when the model is loaded."""

    @classmethod
    def from_config(cls, config: ModelConfig, host_policy: str = "cpu") -> FilSettings:
        """Parse the parameters; raises `ConfigError`."""
        kind = config.parameter("model_type") or "xgboost"
        if kind not in FILES:
            raise ConfigError(f"{kind} not recognized as a valid serialization format.")
        name = "is_classifier" if config.parameter("output_class") is None else "output_class"
        if config.parameter(name) is None:
            raise ConfigError(
                f"model '{config.name}': parameter 'is_classifier' is missing: true for classes,"
                " false for what the trees add up to"
            )
        threads = _integer(config, "cpu_nthread", -1)
        return cls(
            model_type=kind,
            is_classifier=_flag(config, name),
            predict_proba=_flag(config, "predict_proba"),
            threshold=_threshold(config),
            allow_unknown_field=_flag(config, "xgboost_allow_unknown_field"),
            threads=threads if threads > 0 else share_of_cores(config, host_policy),
            compiles=_flag(config, COMPILE),
        )

    @property
    def filename(self) -> str:
        """The file of the format."""
        return FILES[self.model_type]


def warn_of_removed(config: ModelConfig) -> None:
    """Log the parameters that newer releases do not know."""
    for name, instead in _REMOVED.items():
        if config.parameter(name) is not None:
            logger.warning(
                "model '%s': The `%s` parameter has been removed in 25.09 release. %s",
                config.name,
                name,
                instead,
            )


def _flag(config: ModelConfig, name: str) -> bool:
    text = (config.parameter(name) or "false").lower()
    if text not in _FLAGS:
        raise ConfigError(f"parameter '{name}' must be true or false, not '{text}'")
    return _FLAGS[text]


def _integer(config: ModelConfig, name: str, default: int) -> int:
    text = config.parameter(name) or str(default)
    try:
        return int(text)
    except ValueError as error:
        raise ConfigError(f"parameter '{name}' must be a whole number, not '{text}'") from error


def _threshold(config: ModelConfig) -> float:
    text = config.parameter("threshold") or "0.5"
    try:
        return float(text)
    except ValueError as error:
        raise ConfigError(f"parameter 'threshold' must be a number, not '{text}'") from error
