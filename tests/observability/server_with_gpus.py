"""A real server with two GPUs that are not there: a fake driver tells of them.

    python tests/observability/server_with_gpus.py serve [options]

Models stay on the processor.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

sys.path.insert(0, str(Path(__file__).parents[1]))

import penstock.app
from fakes.nvml import VALUES, FakeNvml
from penstock.app.gpus import ServerGpus, open_gpus
from penstock.cli import main
from penstock.settings import DeviceSettings, MetricsSettings

_GIB = 1024**3
_START = time.monotonic()
_LIMIT, _IDLE = 350.0, 60.0  # watts


def _load(handle: int) -> float:
    """0 to 1, up and down in a minute, each GPU in its turn."""
    return 0.5 + 0.45 * math.sin((time.monotonic() - _START) / 60 * math.tau + handle)


def _watts(handle: int) -> float:
    return _IDLE + (_LIMIT - _IDLE) * _load(handle)


_TOLD = {
    "nvmlDeviceGetMemoryInfo": lambda handle: SimpleNamespace(
        total=80 * _GIB, used=int((50 + 10 * _load(handle)) * _GIB), free=0
    ),
    "nvmlDeviceGetUtilizationRates": lambda handle: SimpleNamespace(gpu=round(100 * _load(handle))),
    "nvmlDeviceGetPowerUsage": lambda handle: round(1000 * _watts(handle)),
    "nvmlDeviceGetPowerManagementLimit": lambda handle: round(1000 * _LIMIT),
    "nvmlDeviceGetTotalEnergyConsumption": lambda handle: round(
        1000 * 200 * (time.monotonic() - _START)
    ),
}


@contextmanager
def _faked(devices: DeviceSettings, metrics: MetricsSettings) -> Iterator[ServerGpus]:
    with open_gpus(devices, metrics, visible=(0, 1), api=FakeNvml()) as gpus:
        gpus.usable = ()
        yield gpus


if __name__ == "__main__":
    VALUES.update(_TOLD)
    vars(penstock.app)["open_gpus"] = _faked
    sys.exit(main())
