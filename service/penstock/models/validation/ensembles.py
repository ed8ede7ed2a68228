"""Rules about an ensemble by itself; whether its models fit is seen when they are there."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.core.config import EnsembleScheduling, EnsembleStep, ModelConfig


def ensemble_problems(config: ModelConfig) -> Iterator[str]:
    """`ensemble_scheduling` and the platform `ensemble` come together, and its tensors connect."""
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
    for at, step in enumerate(scheduling.step):
        yield from _step_problems(step, at, name)
    yield from _unconnected(config, scheduling)


def _foreign_fields(config: ModelConfig) -> Iterator[str]:
    if config.instance_group:
        yield f"instance group should not be specified for ensemble '{config.name}'"
    if config.optimization is not None:
        yield f"optimization should not be specified for ensemble '{config.name}'"
    if config.model_warmup:
        yield f"model_warmup can not be specified for ensemble '{config.name}'"


def _step_problems(step: EnsembleStep, at: int, name: str) -> Iterator[str]:
    for field in ("model_name", "input_map", "output_map"):
        if not getattr(step, field):
            yield f"must specify '{field}' in step {at} of ensemble '{name}'"


def _unconnected(config: ModelConfig, scheduling: EnsembleScheduling) -> Iterator[str]:
    """Inputs and outputs that no step knows. The lone quote is what clients get to see."""
    used = {
        tensor
        for step in scheduling.step
        for tensor in (*step.input_map.values(), *step.output_map.values())
    }
    for tensor in config.input:
        if tensor.name not in used:
            yield f"ensemble input '{tensor.name}' for ensemble {config.name}' is not used"
    for output in config.output:
        if output.name not in used:
            yield f"ensemble output '{output.name}' for ensemble {config.name}' is not used"
