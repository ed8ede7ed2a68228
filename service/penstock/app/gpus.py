"""The GPUs that this server uses, and the metrics of them."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from penstock.models.config.gpus import visible_gpus
from penstock.settings import DeviceSettings, MetricsSettings
from penstock.system.nvml import LIBRARY, Nvml, NvmlError
from penstock.telemetry.gpus import GpuUsage

logger = logging.getLogger(__name__)


def usable_gpus(
    settings: DeviceSettings, visible: Sequence[int] | None = None, library: str = LIBRARY
) -> list[int]:
    """The CUDA ordinals of the GPUs that instances may have.

    None with `TRITON_SERVER_CPU_ONLY` (EV-01), else those visible without the ones below
    `--min-supported-compute-capability` (CL-43); all visible ones where it cannot be read.
    """
    if settings.cpu_only:
        return []
    found = list(visible_gpus() if visible is None else visible)
    if not found:
        return []
    try:
        nvml = Nvml(library)
        supported = {gpu: nvml.gpu(gpu).compute_capability() for gpu in found}
    except NvmlError as error:
        logger.warning("the compute capability of GPUs is not known: %s", error)
        return found
    least = settings.min_supported_compute_capability
    for gpu, capability in supported.items():
        if capability < least:
            text = "GPU %d is not used: its compute capability %.1f is below %.1f"
            logger.warning(text, gpu, capability, least)
    return [gpu for gpu, capability in supported.items() if capability >= least]


def gpu_usage(
    settings: MetricsSettings, gpus: Sequence[int], library: str = LIBRARY
) -> GpuUsage | None:
    """The usage of GPUs for the metrics page, from now on; `None` where it is switched off.

    A GPU that cannot be read is logged and left out (ME-25).
    """
    if not (settings.enabled and settings.gpu and gpus):
        return None
    readable = []
    try:
        nvml = Nvml(library)
    except NvmlError as error:
        logger.warning("there are no metrics of GPUs: %s", error)
        return None
    for device in gpus:
        try:
            gpu = nvml.gpu(device)
            gpu.uuid()
            readable.append(gpu)
        except NvmlError as error:
            logger.warning("there are no metrics of GPU %d: %s", device, error)
    usage = GpuUsage(readable, settings.interval_ms / 1000)
    usage.start()
    return usage
