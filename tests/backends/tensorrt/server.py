"""A real server with a GPU that is not there: TensorRT and CUDA are stand-ins.

PYTHONPATH=tests/backends/tensorrt/package python tests/backends/tensorrt/server.py serve ...
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import penstock.app
from fakes.nvml import FakeNvml
from penstock.app.gpus import ServerGpus, open_gpus
from penstock.cli import main
from penstock.settings import DeviceSettings, MetricsSettings


@contextmanager
def _faked(devices: DeviceSettings, metrics: MetricsSettings) -> Iterator[ServerGpus]:
    with open_gpus(devices, metrics, visible=(0,), api=FakeNvml()) as gpus:
        yield gpus


if __name__ == "__main__":
    vars(penstock.app)["open_gpus"] = _faked
    sys.exit(main())
