"""The rules that a model meets before anything of it is started, for loads and for checks alike."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from penstock.core.backend import Backend
from penstock.core.config import InstanceKind, ModelConfig
from penstock.models.config.defaults import normalized, on_cpu
from penstock.models.config.unsupported import (
    refuse_batch_tensors,
    refuse_unsupported,
    warn_without_effect,
)
from penstock.models.config.validation import validate
from penstock.models.loading.token_queues import token_queue
from penstock.scheduling.batching.dynamic_batcher import BatcherSettings

logger = logging.getLogger(__name__)


def settled(config: ModelConfig, gpus: Sequence[int], *, cpu_only: bool = False) -> ModelConfig:
    """The configuration with all defaults, its instances on devices that may be used."""
    return normalized(on_cpu(config) if cpu_only else config, gpus)


def accepted(
    config: ModelConfig, backend: type[Backend], gpus: Sequence[int], *, cpu_only: bool = False
) -> ModelConfig:
    """A completed configuration with all defaults; raises for what it may not say.

    `gpus` are the devices that there are. What has no effect is logged.
    """
    groups = config.instance_group
    if cpu_only and any(group.kind is InstanceKind.KIND_GPU for group in groups):
        logger.warning(
            "instance groups of '%s' for GPUs are served on the CPU, with --cpu-only or"
            " TRITON_SERVER_CPU_ONLY",
            config.name,
        )
    config = settled(config, gpus, cpu_only=cpu_only)
    validate(config, gpus)
    refuse_unsupported(config, backend)
    refuse_batch_tensors(config, backend)
    warn_without_effect(config, backend)
    BatcherSettings.from_config(config)  # raises for parameters that are not usable
    backend.check_config(config)
    token_queue(backend, config, None)  # raises for limits that are not usable
    return config


def refuse_whatever_versions(
    config: ModelConfig,
    backend: type[Backend] | None,
    gpus: Sequence[int],
    *,
    cpu_only: bool = False,
) -> None:
    """Raise for what a model could not be built with whatever versions it had."""
    validate(settled(config, gpus, cpu_only=cpu_only), gpus)
    refuse_unsupported(config, backend)
