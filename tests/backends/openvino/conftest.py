"""Instances of OpenVINO without a server."""

from __future__ import annotations

from functools import partial

import pytest

from backends.conftest import OpenInstance
from penstock_backends.openvino import OpenVinoBackend

pytest.importorskip("openvino", reason="OpenVINO is not installed")


@pytest.fixture
def open_backend(open_instance: OpenInstance) -> OpenInstance:
    return partial(open_instance, OpenVinoBackend)
