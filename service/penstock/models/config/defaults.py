"""Defaults that the server fills into a configuration (C-41, AC-02, AC-03)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from penstock.core.config import (
    DynamicBatching,
    InstanceGroup,
    InstanceKind,
    LatestVersions,
    ModelConfig,
    Optimization,
    PinnedMemory,
    SequenceBatching,
    VersionPolicy,
)
from penstock.core.errors import ConfigError

SEQUENCE_IDLE_MICROSECONDS = 1_000_000
"""Default of `max_sequence_idle_microseconds`."""


@dataclass(frozen=True, slots=True)
class KnownBackend:
    """A backend that is recognised by a platform name or by the name of a model file."""

    backend: str
    filename: str
    platforms: tuple[str, ...] = ()


KNOWN_BACKENDS = (
    KnownBackend("tensorflow", "model.savedmodel", ("tensorflow_savedmodel",)),
    KnownBackend("tensorflow", "model.graphdef", ("tensorflow_graphdef",)),
    KnownBackend("tensorrt", "model.plan", ("tensorrt_plan",)),
    KnownBackend("onnxruntime", "model.onnx", ("onnxruntime_onnx",)),
    KnownBackend("openvino", "model.xml"),
    KnownBackend("pytorch", "model.pt", ("pytorch_libtorch", "libtorch")),
    KnownBackend("pytorch", "model.pt2", ("torch_aoti",)),
    KnownBackend("python", "model.py"),
)
"""In the order in which files are searched; the first platform is the default."""

CPU_INSTANCES: Mapping[str, int] = {"onnxruntime": 2, "tensorflow": 2}
"""Default number of instances on a CPU, for backends where it is not 1."""

CPU_BACKENDS = frozenset(("fil", "openvino", "tensorflow"))
"""Backends whose `KIND_AUTO` is the CPU wherever they are."""


def normalized(config: ModelConfig, gpus: Sequence[int] = ()) -> ModelConfig:
    """The configuration with all defaults filled in; `gpus` are the devices available."""
    config = with_defaults(config)
    return config if config.ensemble_scheduling is not None else with_instances(config, gpus)


# -- backend -----------------------------------------------------------------------------------


def with_backend(config: ModelConfig, name: str, filenames: Collection[str]) -> ModelConfig:
    """Fill in name, backend, platform and model file; raises if the backend cannot be determined.

    `name` is that of the model's folder, `filenames` are the files in a version's folder.
    """
    config = replace(config, name=config.name or name)
    known = _known(config, filenames)
    if known is not None:
        return replace(
            config,
            backend=config.backend or known.backend,
            platform=config.platform or next(iter(known.platforms), ""),
            default_model_filename=config.default_model_filename or known.filename,
        )
    if config.backend or config.platform or config.default_model_filename:
        return config
    return _with_backend_of_name(config)


def _known(config: ModelConfig, filenames: Collection[str]) -> KnownBackend | None:
    """The known backend that a configuration names, or that a file of the model implies."""
    kinds = [k for k in KNOWN_BACKENDS if config.backend in ("", k.backend)]
    if config.platform:
        named = (k for k in kinds if config.platform in k.platforms)
        return next(named, kinds[0] if config.backend and kinds else None)
    if config.default_model_filename:
        named = (k for k in kinds if config.default_model_filename == k.filename)
    else:
        named = (k for k in kinds if k.filename in filenames)
    return next(named, _default_kind(config, kinds))


def _default_kind(config: ModelConfig, kinds: Sequence[KnownBackend]) -> KnownBackend | None:
    """The default of a named backend; tensorflow has two kinds of model, so it has none."""
    if not config.backend or config.backend == "tensorflow":
        return None
    return next(iter(kinds), None)


def _with_backend_of_name(config: ModelConfig) -> ModelConfig:
    _, dot, backend = config.name.partition(".")
    if not dot:
        raise ConfigError(
            f"Invalid model name: Could not determine backend for model '{config.name}' "
            "with no backend in model configuration. "
            "Expected model name of the form 'model.<backend_name>'."
        )
    return replace(config, backend=backend, default_model_filename=f"model.{backend}")


# -- scheduling and memory ---------------------------------------------------------------------


def with_defaults(config: ModelConfig) -> ModelConfig:
    """Fill in version policy, batching and memory settings."""
    return replace(
        config,
        version_policy=config.version_policy or VersionPolicy(latest=LatestVersions(1)),
        dynamic_batching=_dynamic(config.dynamic_batching, config.max_batch_size),
        sequence_batching=_sequence(config.sequence_batching, config.max_batch_size),
        optimization=_optimization(config),
    )


def _preferred(sizes: tuple[int, ...], max_batch_size: int) -> tuple[int, ...]:
    return sizes or ((max_batch_size,) if max_batch_size > 0 else ())


def _dynamic(batching: DynamicBatching | None, max_batch_size: int) -> DynamicBatching | None:
    if batching is None:
        return None
    sizes = _preferred(batching.preferred_batch_size, max_batch_size)
    return replace(batching, preferred_batch_size=sizes)


def _sequence(batching: SequenceBatching | None, max_batch_size: int) -> SequenceBatching | None:
    if batching is None:
        return None
    oldest = batching.oldest
    if oldest is not None:
        sizes = _preferred(oldest.preferred_batch_size, max_batch_size)
        oldest = replace(oldest, preferred_batch_size=sizes)
    idle = batching.max_sequence_idle_microseconds or SEQUENCE_IDLE_MICROSECONDS
    return replace(batching, oldest=oldest, max_sequence_idle_microseconds=idle)


def _optimization(config: ModelConfig) -> Optimization | None:
    if config.ensemble_scheduling is not None:
        return config.optimization
    given = config.optimization or Optimization()
    return replace(
        given,
        input_pinned_memory=given.input_pinned_memory or PinnedMemory(enable=True),
        output_pinned_memory=given.output_pinned_memory or PinnedMemory(enable=True),
    )


# -- instances ---------------------------------------------------------------------------------


def with_instances(config: ModelConfig, gpus: Sequence[int] = ()) -> ModelConfig:
    """Fill in names, kinds, counts and devices of the instance groups."""
    given = config.instance_group or (InstanceGroup(name=config.name),)
    groups = [_group(config, at, group, gpus) for at, group in enumerate(given)]
    return replace(config, instance_group=tuple(groups))


def on_cpu(config: ModelConfig) -> ModelConfig:
    """The configuration with each group for GPUs, or for what there is, as one for the CPU."""
    kinds = (InstanceKind.KIND_GPU, InstanceKind.KIND_AUTO)
    groups = (
        replace(group, kind=InstanceKind.KIND_CPU, gpus=()) if group.kind in kinds else group
        for group in config.instance_group
    )
    return replace(config, instance_group=tuple(groups))


def _group(
    config: ModelConfig, at: int, group: InstanceGroup, gpus: Sequence[int]
) -> InstanceGroup:
    kind = _kind(group, () if config.backend in CPU_BACKENDS else gpus)
    count = CPU_INSTANCES.get(config.backend, 1) if kind is InstanceKind.KIND_CPU else 1
    return replace(
        group,
        name=group.name or f"{config.name}_{at}",
        kind=kind,
        count=group.count if group.count > 0 else count,
        gpus=group.gpus or (tuple(gpus) if kind is InstanceKind.KIND_GPU else ()),
    )


def _kind(group: InstanceGroup, gpus: Sequence[int]) -> InstanceKind:
    """`KIND_AUTO` is a GPU if there is one and all named ones are available, else the CPU."""
    if group.kind is not InstanceKind.KIND_AUTO:
        return group.kind
    usable = bool(gpus) and set(group.gpus) <= set(gpus)
    return InstanceKind.KIND_GPU if usable else InstanceKind.KIND_CPU
