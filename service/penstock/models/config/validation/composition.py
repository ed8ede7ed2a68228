"""Validation of an ensemble against the models of its steps, at load (E-03 to E-05, E-10).

Messages and their order are Triton's.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from penstock.core.config import (
    EnsembleStep,
    ModelConfig,
    ModelInput,
    ModelOutput,
    TransactionPolicy,
)
from penstock.core.errors import ConfigError
from penstock.core.tensor import DataType

Parts = Mapping[str, ModelConfig]
"""Configurations of the models of the steps, by name."""

Dims = tuple[int, ...]


def composed(
    config: ModelConfig, parts: Parts, completed: Container[str] = frozenset()
) -> ModelConfig:
    """An ensemble's configuration over its models: decoupled if any of them is.

    `completed` are models whose batch size is not from their configuration. Raises `ConfigError` if
    tensors or batch sizes do not match.
    """
    tensors = _Tensors(config)
    for step in config.ensemble_scheduling.step if config.ensemble_scheduling else ():
        part = parts[step.model]
        source = _COMPLETED if part.name in completed else ""
        for problem in _step_problems(config, step, part, tensors, source):
            raise ConfigError(problem)
    origins = _Origins(config, parts, tensors)
    for problem in origins.problems():
        raise ConfigError(problem)
    if config.response_cache is not None and config.response_cache.enable:
        _refuse_to_cache(config, parts)
    policy = TransactionPolicy(decoupled=origins.decoupled)
    return replace(config, model_transaction_policy=policy)


def _refuse_to_cache(config: ModelConfig, parts: Parts) -> None:
    """An ensemble cannot be cached if one of its models cannot (E-14)."""
    if any(part.sequence_batching is not None for part in parts.values()):
        raise ConfigError(
            f"Response Cache does not currently support model {config.name} with sequence batching"
            " scheduler. Please disable the response cache."
        )


@dataclass(frozen=True, slots=True)
class _Declaration:
    """A model's declaration of a tensor of the ensemble; dimensions of -1 match any size."""

    model: str
    datatype: DataType
    dims: Dims
    full: Dims

    @classmethod
    def of_tensor(
        cls, owner: ModelConfig, tensor: ModelInput | ModelOutput, dims: Dims
    ) -> _Declaration:
        full = (-1, *dims) if owner.max_batch_size > 0 else dims
        return cls(owner.name, tensor.data_type or DataType.INVALID, dims, full)

    def conflict(self, other: _Declaration) -> str:
        """The differences between two declarations; empty if they match."""
        kind, one, two = "", "", ""
        if self.datatype is not other.datatype:
            kind, one, two = "data type", self.datatype.config_name, other.datatype.config_name
        elif not (_agree(self.dims, other.dims) or _agree(self.full, other.full)):
            kind, one, two = "shape", _text(self.full), _text(other.full)
        if not kind:
            return ""
        return (
            f"inconsistent {kind}: {one} is inferred from model {self.model}"
            f" while {two} is inferred from model {other.model}"
        )


class _Tensors:
    """The first declaration of each tensor of an ensemble; the ensemble's own come first."""

    def __init__(self, config: ModelConfig) -> None:
        self._ensemble = config.name
        self._declared: dict[str, _Declaration] = {}
        own: list[ModelInput | ModelOutput] = [*config.input, *config.output]
        for tensor in own:
            dims = tensor.dims if tensor.reshape is None else tensor.reshape.shape
            self._declared.setdefault(tensor.name, _Declaration.of_tensor(config, tensor, dims))

    def owner(self, name: str) -> str:
        """The model that declared a tensor first."""
        return self._declared[name].model

    def declare(self, name: str, declared: _Declaration) -> Iterator[str]:
        conflict = self._declared.setdefault(name, declared).conflict(declared)
        if conflict:
            yield f"in ensemble {self._ensemble}, ensemble tensor {name}: {conflict}"


_COMPLETED = (
    "; its configuration gives no max_batch_size, so the default of auto-completion counts: set"
    " max_batch_size in its config.pbtxt, or --backend-config=default-max-batch-size=N"
)


def _step_problems(
    config: ModelConfig, step: EnsembleStep, part: ModelConfig, tensors: _Tensors, source: str
) -> Iterator[str]:
    if 0 < part.max_batch_size < config.max_batch_size:
        yield (
            f"ensemble {config.name} allows maximum batch size {config.max_batch_size},"
            f" but it contains model {part.name} which only allows maximum batch size to be"
            f" {part.max_batch_size}{source}"
        )
    yield from _input_problems(config.name, step, part, tensors)
    yield from _output_problems(config.name, step, part, tensors)


def _input_problems(
    ensemble: str, step: EnsembleStep, part: ModelConfig, tensors: _Tensors
) -> Iterator[str]:
    for name, tensor in step.input_map.items():
        if name not in part.inputs_by_name:
            yield (
                f"in ensemble {ensemble}, ensemble tensor {tensor} is mapping to non-existing"
                f" input {name} in model {part.name}"
            )
    for known in part.input:
        mapped = step.input_map.get(known.name)
        if mapped is not None:
            yield from tensors.declare(mapped, _Declaration.of_tensor(part, known, known.dims))
        elif not known.optional:
            yield (
                f"in ensemble {ensemble}, input {known.name} in model {part.name}"
                " is not mapped to any ensemble tensors"
            )


def _output_problems(
    ensemble: str, step: EnsembleStep, part: ModelConfig, tensors: _Tensors
) -> Iterator[str]:
    for name, tensor in step.output_map.items():
        if name not in part.outputs_by_name:
            yield (
                f"in ensemble {ensemble}, ensemble tensor {tensor} is mapped from non-existing"
                f" output {name} in model {part.name}"
            )
    for name, tensor in step.output_map.items():
        known = part.outputs_by_name[name]
        yield from tensors.declare(tensor, _Declaration.of_tensor(part, known, known.dims))


class _Origins:
    """The decoupled step from which each tensor originates: a number, 0 for none.

    Responses of different decoupled steps cannot be matched, so no step may use both.
    """

    def __init__(self, config: ModelConfig, parts: Parts, tensors: _Tensors) -> None:
        self._config = config
        self._parts = parts
        self._tensors = tensors
        self._origins = {tensor.name: 0 for tensor in config.input}
        self._decoupled = 0

    @property
    def decoupled(self) -> bool:
        """Whether the ensemble is decoupled; valid once `problems` is exhausted."""
        return self._decoupled > 0

    def problems(self) -> Iterator[str]:
        """Steps, and last the ensemble itself, whose inputs have different origins."""
        scheduling = self._config.ensemble_scheduling
        waiting = list(scheduling.step) if scheduling else []
        while ready := [s for s in waiting if self._origins.keys() >= {*s.input_map.values()}]:
            for step in ready:
                waiting.remove(step)
                yield from self._follow(step)
        yield from self._mixed([o.name for o in self._config.output], self._config.name)

    def _follow(self, step: EnsembleStep) -> Iterator[str]:
        outputs = list(step.output_map.values())
        yield from self._mixed(list(step.input_map.values()), self._tensors.owner(outputs[0]))
        origin = self._origins[next(iter(step.input_map.values()))]
        if self._parts[step.model].decoupled:
            self._decoupled += 1
            origin = self._decoupled
        self._origins.update(dict.fromkeys(outputs, origin))

    def _mixed(self, names: Sequence[str], model: str) -> Iterator[str]:
        if len({self._origins[name] for name in names}) > 1:
            yield (
                f"in ensemble {self._config.name}, step of model '{model}' receives inputs"
                " originated from different decoupled models"
            )


def _agree(one: Dims, two: Dims) -> bool:
    return len(one) == len(two) and all(
        a == b or -1 in (a, b) for a, b in zip(one, two, strict=True)
    )


def _text(dims: Dims) -> str:
    return f"[{','.join(map(str, dims))}]"
