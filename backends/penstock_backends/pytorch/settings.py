"""`TorchSettings`: how a model is loaded and run, from its parameters (contract B-09, B-12)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.backend import ConfigError, ModelConfig, share_of_cores

_ALLOWING = ("allow-unsafe-models", "allow-pickle")
"""The backend settings that allow files which may run code while they are read: of the server's own
flag, and of this backend alone."""

NOT_INSTALLED = (
    "the pytorch backend needs a package that is not installed; install it with: "
    "pip install 'penstock[torch]', or name the Python of an environment that has it: "
    "--backend-config=pytorch,python=/path/to/python"
)


@dataclass(frozen=True, slots=True)
class TorchSettings:
    """Switches of PyTorch, for the process of an instance."""

    optimized: bool = True
    inference_mode: bool = True
    """Whether runs are in inference mode; else they only keep no gradients."""
    cudnn: bool = True
    cleans_cache: bool = False
    """Whether unused memory of the GPU is given back after each run."""
    profiling_executor: bool | None = None
    profiling: bool | None = None
    fuser: bool | None = None
    """Switches of the TorchScript compiler; left as they are where they are `None`."""
    threads: int = 1
    """Threads of one operation."""
    pools: int = 0
    """Operations beside each other; 0 leaves them as PyTorch has them."""
    compile_options: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of `torch.compile`, for modules in Python."""
    allows_pickle: bool = False
    shares_weights: bool = False
    """Whether the instances have one copy of the weights: on CPUs, or on threads."""
    on_threads: bool = False
    """Whether the instances are threads of the server, with its other models beside them."""

    @classmethod
    def from_config(
        cls, config: ModelConfig, settings: Mapping[str, str], host_policy: str = "cpu"
    ) -> TorchSettings:
        """Parse the parameters; raises `ConfigError`."""
        on_threads = config.parameter("penstock.host") == "thread"
        if on_threads:
            _check_shared(config)
        threads = _number(config, "INTRA_OP_THREAD_COUNT") or _number(config, "NUM_THREADS")
        pools = _number(config, "INTER_OP_THREAD_COUNT") or _number(config, "NUM_INTEROP_THREADS")
        return cls(
            optimized=not _switch(config, "DISABLE_OPTIMIZED_EXECUTION"),
            inference_mode=_switch(config, "INFERENCE_MODE") is not False,
            cudnn=not _switch(config, "DISABLE_CUDNN"),
            cleans_cache=bool(_switch(config, "ENABLE_CACHE_CLEANING")),
            profiling_executor=_switch(config, "ENABLE_JIT_EXECUTOR"),
            profiling=_switch(config, "ENABLE_JIT_PROFILING"),
            fuser=_switch(config, "ENABLE_TENSOR_FUSER"),
            threads=threads or share_of_cores(config, host_policy),
            pools=pools,
            compile_options=_compile_options(config),
            allows_pickle=any(settings.get(name, "").lower() == "true" for name in _ALLOWING),
            shares_weights=bool(_switch(config, "ENABLE_WEIGHT_SHARING")),
            on_threads=on_threads,
        )


_OF_THE_PROCESS = (
    "DISABLE_CUDNN",
    "DISABLE_OPTIMIZED_EXECUTION",
    "ENABLE_JIT_EXECUTOR",
    "ENABLE_JIT_PROFILING",
    "ENABLE_TENSOR_FUSER",
    "INTER_OP_THREAD_COUNT",
    "NUM_INTEROP_THREADS",
)
"""Parameters that would hold for all models of a process."""


def _check_shared(config: ModelConfig) -> None:
    """Refuse, for a model on threads, what it would do to those beside it."""
    for name in _OF_THE_PROCESS:
        if config.parameter(name) is not None:
            raise ConfigError(
                f"parameter '{name}' holds for a whole process: leave it out, or parameter"
                " 'penstock.host', so that each instance has a process of its own"
            )


def _switch(config: ModelConfig, name: str) -> bool | None:
    """A parameter that is true or false; `None` where it is not given."""
    text = config.parameter(name)
    if text is None:
        return None
    if text.lower() not in ("true", "false", "1", "0"):
        raise ConfigError(f"parameter '{name}' must be true or false, not '{text}'")
    return text.lower() in ("true", "1")


def _number(config: ModelConfig, name: str) -> int:
    text = config.parameter(name) or "0"
    if not text.isdecimal():
        raise ConfigError(f"parameter '{name}' must be a whole number, not '{text}'")
    return int(text)


def _compile_options(config: ModelConfig) -> Mapping[str, Any]:
    name = "TORCH_COMPILE_OPTIONAL_PARAMETERS"
    text = config.parameter(name) or "{}"
    try:
        options = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"parameter '{name}' is no JSON: {error}") from error
    if not isinstance(options, dict) or "model" in options:
        raise ConfigError(
            f"parameter '{name}' must be an object of arguments of torch.compile, without 'model'"
        )
    return options
