"""The GPUs that this server uses, and the metrics of them."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from penstock.core.errors import ModelLoadError
from penstock.models.config.gpus import visible_gpus
from penstock.settings import DeviceSettings, MetricsSettings
from penstock.system.nvml import Nvml, NvmlError
from penstock.telemetry.gpus import GpuUsage

logger = logging.getLogger(__name__)


class ServerGpus:
    """The GPUs that instances may have, by CUDA ordinal, over one handle of the driver.

    `usage` is read for the metrics page, `None` where there is nothing to read or the settings
    switch it off.
    """

    def __init__(
        self, nvml: Nvml | None, usable: Sequence[int] = (), usage: GpuUsage | None = None
    ) -> None:
        self._nvml = nvml
        self.usable = usable
        self.usage = usage

    def used_memory(self, device: int) -> float:
        """The fraction of a GPU's memory in use; raises `ModelLoadError` (M-13). May block."""
        try:
            if self._nvml is None:
                raise NvmlError("the driver is not open")
            used, total = self._nvml.gpu(device).memory()
        except NvmlError as error:
            raise ModelLoadError(f"cannot read the memory use of GPU {device}: {error}") from error
        return used / total

    def memory(self) -> dict[int, int]:
        """Bytes of each GPU; 0 where that cannot be read. May block."""
        found = dict.fromkeys(self.usable, 0)
        if self._nvml is not None:
            for gpu in found:
                with suppress(NvmlError):
                    found[gpu] = self._nvml.gpu(gpu).memory()[1]
        return found

    def processes(self) -> dict[int, dict[int, int]]:
        """Bytes of each GPU by process; without those that cannot be read. May block."""
        found: dict[int, dict[int, int]] = {}
        if self._nvml is not None:
            for gpu in self.usable:
                with suppress(NvmlError):
                    found[gpu] = self._nvml.gpu(gpu).processes()
        return found

    def least_memory(self) -> int:
        """Bytes of the smallest of the GPUs; 0 where that cannot be read. May block."""
        return min(self.memory().values(), default=0)


@contextmanager
def open_gpus(
    devices: DeviceSettings,
    metrics: MetricsSettings,
    visible: Sequence[int] | None = None,
    api: Any = None,
) -> Iterator[ServerGpus]:
    """Find the GPUs, and read their usage until the end.

    None with `TRITON_SERVER_CPU_ONLY` (EV-01), else those visible without the ones below
    `--min-supported-compute-capability` (CL-43); all visible ones where it cannot be read.
    """
    found = list(visible_gpus() if visible is None else visible)
    if devices.cpu_only or not found:
        if metrics.enabled and metrics.gpu:
            reason = "the server is for processors only" if devices.cpu_only else "none is visible"
            logger.info("there are no metrics of GPUs: %s", reason)
        yield ServerGpus(None)
        return
    try:
        nvml = Nvml(api)
    except NvmlError as error:
        logger.warning("there are no metrics of GPUs, and all visible ones are used: %s", error)
        yield ServerGpus(None, found)
        return
    usable = _usable(nvml, found, devices.min_supported_compute_capability)
    usage = _usage(nvml, metrics, usable)
    try:
        yield ServerGpus(nvml, usable, usage)
    finally:
        if usage is None or usage.stop():
            nvml.close()


def _usable(nvml: Nvml, visible: Sequence[int], least: float) -> Sequence[int]:
    try:
        supported = {gpu: nvml.gpu(gpu).compute_capability() for gpu in visible}
    except NvmlError as error:
        logger.warning("the compute capability of GPUs is not known: %s", error)
        return visible
    for gpu, capability in supported.items():
        if capability < least:
            text = "GPU %d is not used: its compute capability %.1f is below %.1f"
            logger.warning(text, gpu, capability, least)
    return [gpu for gpu, capability in supported.items() if capability >= least]


def _usage(nvml: Nvml, settings: MetricsSettings, gpus: Sequence[int]) -> GpuUsage | None:
    """The usage of GPUs from now on; one that cannot be read is logged and left out (ME-25)."""
    if not (settings.enabled and settings.gpu):
        return None
    readable, uuids = [], {}
    for device in gpus:
        try:
            gpu = nvml.gpu(device)
            uuids[device] = gpu.uuid()
            readable.append(gpu)
        except NvmlError as error:
            logger.warning("there are no metrics of GPU %d: %s", device, error)
    usage = GpuUsage(readable, settings.interval_ms / 1000, uuids)
    usage.start()
    return usage
