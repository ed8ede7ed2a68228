"""Instances of OpenVINO without a server, and a real network in the formats of several engines."""

from __future__ import annotations

from functools import partial
from importlib.util import find_spec
from pathlib import Path

import pytest

from backends.conftest import OpenInstance
from penstock_backends.openvino import OpenVinoBackend

pytest.importorskip("openvino", reason="OpenVINO is not installed")


@pytest.fixture
def open_backend(open_instance: OpenInstance) -> OpenInstance:
    return partial(open_instance, OpenVinoBackend)


@pytest.fixture
def basic_pitch() -> Path:
    """The folder with one network as `nmp.onnx`, `nmp.tflite`, and TensorFlow's folder `nmp`."""
    spec = find_spec("basic_pitch")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("the network is in a package: pip install --no-deps basic-pitch==0.4.0")
    return Path(spec.submodule_search_locations[0]) / "saved_models" / "icassp_2022"
