"""What backends import of the kit where its packages, an extra, are not installed."""

from __future__ import annotations

import subprocess
import sys

import pytest

_PROGRAM = """
import sys

for name in ("jinja2", "openai", "pydantic", "pydantic_core"):
    sys.modules[name] = None
import {module}
"""


@pytest.mark.parametrize(
    "module",
    [
        "penstock_backends.openai_kit.settings",
        "penstock_backends.openai_kit.tensor_encoder",
        "penstock_backends.openvino_genai.openai_app",
        "penstock_backends.onnxruntime.openai_app",
    ],
)
def test_backends_are_imported_without_the_kits_packages(module: str) -> None:
    command = [sys.executable, "-c", _PROGRAM.format(module=module)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
