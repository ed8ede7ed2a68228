"""`TensorRtSettings`: how a plan is loaded and run (contract B-13, C-22, C-23, C-27)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.backend import ConfigError, ModelConfig

STRATEGY = "execution_context_allocation_strategy"
_STRATEGIES = ("STATIC", "ON_PROFILE_CHANGE")
_POLICIES = ("DEVICE_BLOCKING", "BLOCKING")
_FLAGS = {"true": True, "1": True, "false": False, "0": False}
_GRAPH_ROWS = (1, 2, 3, 4, 6, 8, 12, 16)
"""Batch sizes that graphs are captured for where the configuration names none."""


@dataclass(frozen=True, slots=True)
class GraphSpec:
    """A batch that a CUDA graph is captured for, and the smallest that it may run.

    `shapes` are those of inputs without the batch dimension; without any, they are those that each
    profile is optimised for.
    """

    rows: int
    least_rows: int
    shapes: Mapping[str, tuple[int, ...]]
    least_shapes: Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class TensorRtSettings:
    """The options of a plan and of its instances.

    `slots` are the batches that an instance has in flight at once: while one computes, the next is
    copied to the GPU, or the last one from it.
    """

    strategy: str = _STRATEGIES[0]
    priority: str = "PRIORITY_DEFAULT"
    slots: int = 1
    output_stream: bool = False
    busy_wait: bool = False
    pinned_inputs: bool = True
    pinned_outputs: bool = True
    graphs: tuple[GraphSpec, ...] = ()
    inexact_graphs: bool = False
    coalesces: bool = False
    device_blocking: bool = True
    """Whether the instances of a device take turns when they launch kernels."""
    version_compatible: bool = False
    plugins: tuple[str, ...] = ()

    @classmethod
    def from_config(cls, config: ModelConfig, settings: Mapping[str, str]) -> TensorRtSettings:
        """Parse the configuration and the backend's settings; raises `ConfigError`."""
        hints: Any = config.optimization
        cuda: Any = hints and hints.cuda
        eager = bool(hints and hints.eager_batching) or bool(cuda and cuda.output_copy_stream)
        policy = _one_of("backend-config execution-policy", settings, "execution-policy", _POLICIES)
        given = {name: parameter.string_value for name, parameter in config.parameters.items()}
        return cls(
            strategy=_one_of(f"parameter '{STRATEGY}'", given, STRATEGY, _STRATEGIES),
            priority=str(hints.priority) if hints else "PRIORITY_DEFAULT",
            # The states of a sequence are those of its last batch, so that has to be done.
            slots=2 if eager and config.sequence_batching is None else 1,
            output_stream=bool(cuda and cuda.output_copy_stream),
            busy_wait=bool(cuda and cuda.busy_wait_events),
            pinned_inputs=_pinned(hints, "input_pinned_memory"),
            pinned_outputs=_pinned(hints, "output_pinned_memory"),
            graphs=tuple(_graphs(config, cuda)) if cuda and cuda.graphs else (),
            inexact_graphs=bool(cuda and any(one.graph_lower_bound for one in cuda.graph_spec)),
            coalesces=_flag(settings, "coalesce-request-input"),
            device_blocking=policy == _POLICIES[0],
            version_compatible=_flag(settings, "version-compatible"),
            plugins=tuple(path for path in settings.get("plugins", "").split(";") if path),
        )


def _one_of(what: str, given: Mapping[str, str], name: str, allowed: tuple[str, ...]) -> str:
    text = given.get(name, allowed[0])
    if text not in allowed:
        raise ConfigError(f"{what} must be {' or '.join(allowed)}, not '{text}'")
    return text


def _flag(settings: Mapping[str, str], name: str) -> bool:
    text = settings.get(name, "false")
    if text.lower() not in _FLAGS:
        raise ConfigError(f"backend-config {name} must be true or false, not '{text}'")
    return _FLAGS[text.lower()]


def _pinned(hints: Any, name: str) -> bool:
    given = getattr(hints, name, None)
    return given is None or bool(given.enable)


def _graphs(config: ModelConfig, cuda: Any) -> Iterator[GraphSpec]:
    """The shapes that graphs are captured for; raises `ConfigError`."""
    most = config.max_batch_size
    if not cuda.graph_spec:
        for rows in sorted(_default_rows(config)):
            yield GraphSpec(rows, rows, {}, {})
    for given in cuda.graph_spec:
        low = given.graph_lower_bound or given
        spec = GraphSpec(given.batch_size, low.batch_size, _shapes(given), _shapes(low))
        _check(spec, most)
        yield spec


def _default_rows(config: ModelConfig) -> set[int]:
    most, sequences = config.max_batch_size, config.sequence_batching
    batching = config.dynamic_batching or (sequences and sequences.oldest)
    rows = (1, *batching.preferred_batch_size) if batching else _GRAPH_ROWS
    return {number for number in (*rows, most) if number <= most} if most else {0}


def _shapes(given: Any) -> dict[str, tuple[int, ...]]:
    return {name: tuple(shape.dim) for name, shape in given.input.items()}


def _check(spec: GraphSpec, most: int) -> None:
    """Check a graph and its bounds with Triton's words; raises `ConfigError`."""
    if not most:
        if spec.rows or spec.least_rows:
            raise ConfigError("graph spec expects 'batch_size' to be 0 if 'max_batch_size' is 0")
    elif not (1 <= spec.rows <= most and 1 <= spec.least_rows <= most):
        raise ConfigError(f"graph spec expects 'batch_size' to be >= 1 and <= {most}")
    if spec.least_rows > spec.rows:
        raise ConfigError(
            "graph lower bound spec expects 'batch_size' to be <= graph spec 'batch_size'"
        )
    for name, shape in spec.shapes.items():
        _check_shape(name, shape, spec.least_shapes.get(name))


def _check_shape(name: str, shape: tuple[int, ...], least: tuple[int, ...] | None) -> None:
    if least is None:
        raise ConfigError(f"graph lower bound spec expects shape for input '{name}'")
    if len(least) != len(shape):
        raise ConfigError(
            f"graph lower bound spec expects to have '{len(shape)}' dimensions, got {len(least)}"
        )
    for low, high in zip(least, shape, strict=True):
        if low < 0 or high < 0:
            raise ConfigError(f"graph spec expects input '{name}' to have dimension >= 0")
        if low > high:
            raise ConfigError(
                f"graph lower bound spec expects input '{name}' to have dimension <= {high}"
            )
