"""Rules about an ensemble alone; `composition` checks it against the models of its steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from penstock.core.config import EnsembleScheduling, EnsembleStep, ModelConfig


def ensemble_problems(config: ModelConfig) -> Iterator[str]:
    """Problems of `ensemble_scheduling` and of the graph of its tensors."""
    scheduling, name = config.ensemble_scheduling, config.name
    if scheduling is None:
        if config.is_ensemble:
            yield f"ensemble scheduling must be set for ensemble {name} whose platform is ensemble"
        return
    if not config.is_ensemble:
        yield (
            f"ensemble scheduling cannot be set for model '{name}' whose platform is not ensemble"
        )
    yield from _foreign_fields(config)
    if not scheduling.step:
        yield f"must specify 'step' for ensemble '{name}'"
    made: set[str] = set()
    for at, step in enumerate(scheduling.step):
        yield from _step_problems(step, at, name, made)
    yield from _TensorGraph.from_config(config, scheduling).problems(config)


def _foreign_fields(config: ModelConfig) -> Iterator[str]:
    if config.instance_group:
        yield f"instance group should not be specified for ensemble '{config.name}'"
    if config.optimization is not None:
        yield f"optimization should not be specified for ensemble '{config.name}'"
    if config.model_warmup:
        yield f"model_warmup can not be specified for ensemble '{config.name}'"


def _step_problems(step: EnsembleStep, at: int, name: str, made: set[str]) -> Iterator[str]:
    """Missing fields of a step, and outputs in `made` already; adds its outputs to `made`."""
    for required in ("model_name", "input_map", "output_map"):
        if not getattr(step, required):
            yield f"must specify '{required}' in step {at} of ensemble '{name}'"
    for tensor in step.output_map.values():
        if tensor in made:
            yield (
                f"ensemble tensor '{tensor}' can appear in an output map only once for ensemble"
                f" '{name}' step {at}"
            )
        made.add(tensor)


@dataclass(frozen=True, slots=True)
class _TensorGraph:
    """The tensor graph: sources by tensor, tensors that steps use, and tensors that are written."""

    sources: Mapping[str, tuple[str, ...]]
    used: frozenset[str]
    written: set[str] = field(default_factory=set)

    @classmethod
    def from_config(cls, config: ModelConfig, scheduling: EnsembleScheduling) -> _TensorGraph:
        steps = scheduling.step
        sources = {o: tuple(s.input_map.values()) for s in steps for o in s.output_map.values()}
        used = frozenset(tensor for step in steps for tensor in step.input_map.values())
        flow = cls(sources, used, {tensor.name for tensor in config.input})
        while new := {t for t, of in sources.items() if flow.written.issuperset(of)} - flow.written:
            flow.written.update(new)
        return flow

    @property
    def tensors(self) -> dict[str, None]:
        """Every tensor that a step knows, in order."""
        return dict.fromkeys((*self.sources, *sorted(self.used)))

    def problems(self, config: ModelConfig) -> Iterator[str]:
        """Tensors that are not connected. The unpaired quotes are in Triton's texts too."""
        tensors, name = self.tensors, config.name
        for given in config.input:
            if given.name not in tensors:
                yield f"ensemble input '{given.name}' for ensemble {name}' is not used"
        for output in config.output:
            if output.name not in tensors:
                yield f"ensemble output '{output.name}' for ensemble {name}' is not used"
            elif output.name not in self.written:
                yield self._not_written(output.name, name)
        outputs = {output.name for output in config.output}
        for tensor in tensors:
            if tensor not in outputs and not (tensor in self.written and tensor in self.used):
                yield f"ensemble tensor '{tensor}' is unused in ensemble '{name}'"

    def _not_written(self, output: str, name: str) -> str:
        text = f"output '{output}' for ensemble '{name}' is not written"
        source = self._source(output)
        if source == output:
            return text
        return f"{text}: at least one of its depending tensors, '{source}', is not connected"

    def _source(self, tensor: str) -> str:
        """The farthest upstream source of `tensor` that is not written."""
        seen = {tensor}
        while True:
            loose = (t for t in self.sources.get(tensor, ()) if t not in self.written | seen)
            found = next(loose, None)
            if found is None:
                return tensor
            seen.add(found)
            tensor = found
