"""`OpenVinoSettings`: how a model is compiled and batched, from its parameters (contract B-14)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.backend import ConfigError, ModelConfig, share_of_cores, sharers

_HINTS = ("LATENCY", "THROUGHPUT", "CUMULATIVE_THROUGHPUT")
_STREAMS = ("AUTO", "NUMA")


@dataclass(frozen=True, slots=True)
class OpenVinoSettings:
    """The device of a compiled model, its properties, and what becomes of the batch dimension."""

    device: str = "CPU"
    extension: str = ""
    """The shared library of a model's own operators."""
    properties: Mapping[str, str] = field(default_factory=dict)
    compilation_threads: str = ""
    """For devices that know it; the CPU does not."""
    keeps_batch: bool = False
    """Whether the first dimensions stay as the model has them."""
    pads_batch: bool = False
    """Whether each batch is filled up to the largest, for which the model is compiled."""
    reshapes: bool = False
    """Whether the inputs get the dimensions of the configuration."""

    @classmethod
    def from_config(cls, config: ModelConfig, host_policy: str = "cpu") -> OpenVinoSettings:
        """Parse the parameters; raises `ConfigError`.

        All instances share a compiled model, so it has the cores of their host policy, and a stream
        for each instance unless the parameters say otherwise.
        """
        count = sharers(config, host_policy)
        threads = share_of_cores(config, host_policy) * count
        properties = {
            # In bfloat16, the default of CPUs with AMX, vectors are off by some hundredths.
            "INFERENCE_PRECISION_HINT": "bf16" if _yes(config, "HINT_BF16") else "f32",
            "INFERENCE_NUM_THREADS": _number(config, "INFERENCE_NUM_THREADS") or str(threads),
        }
        hint, streams = _hint(config), _streams(config)
        if hint:
            properties["PERFORMANCE_HINT"] = hint
        if streams or not hint:
            properties["NUM_STREAMS"] = streams or str(count)
        return cls(
            device=(config.parameter("TARGET_DEVICE") or "CPU").upper(),
            extension=config.parameter("CPU_EXTENSION_PATH") or "",
            properties=properties,
            compilation_threads=_number(config, "COMPILATION_NUM_THREADS"),
            keeps_batch=_yes(config, "SKIP_OV_DYNAMIC_BATCHSIZE"),
            pads_batch=_yes(config, "ENABLE_BATCH_PADDING"),
            reshapes=_yes(config, "RESHAPE_IO_LAYERS"),
        )


def _yes(config: ModelConfig, name: str) -> bool:
    return (config.parameter(name) or "").lower() == "yes"


def _number(config: ModelConfig, name: str) -> str:
    text = config.parameter(name) or ""
    if text and not text.isdecimal():
        raise _expected(name, "a non-negative number", text)
    return text


def _hint(config: ModelConfig) -> str:
    text = (config.parameter("PERFORMANCE_HINT") or "").upper()
    if text and text not in _HINTS:
        raise _expected("PERFORMANCE_HINT", "/".join(_HINTS), text)
    return text


def _streams(config: ModelConfig) -> str:
    text = (config.parameter("NUM_STREAMS") or "").upper()
    if text and text not in _STREAMS and not text.isdecimal():
        raise _expected("NUM_STREAMS", "either AUTO/NUMA/<int_value>", text)
    return text


def _expected(name: str, what: str, text: str) -> ConfigError:
    return ConfigError(f"expected the parameter '{name}' to be {what}, got {text.lower()}")
