"""How the kit is imported: without its packages, an extra, and by several threads at once."""

from __future__ import annotations

import subprocess
import sys

import pytest

from penstock.backend import BackendNotInstalledError
from penstock_backends.openai_kit.packages import kit_imports

_PROGRAM = """
import sys

for name in ("jinja2", "openai", "pydantic", "pydantic_core"):
    sys.modules[name] = None
import {module}
"""

_AT_ONCE = """
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

from penstock.backend import DataType, Input, ModelConfig, Output
from penstock_backends.openai_kit import tensor_encoder
from penstock_backends.openai_kit.text_models import text_generator

sys.setswitchinterval(1e-6)
together = Barrier(2)


def opened(kit, given, made, kind):
    config = ModelConfig(
        name="m",
        input=(Input(name=given, data_type=DataType.BYTES, dims=(1,)),),
        output=(Output(name=made, data_type=kind, dims=(2,)),),
        max_batch_size=1,
    )
    together.wait()
    return kit.open_application(config, None) is not None


with ThreadPoolExecutor() as threads:
    text = threads.submit(opened, text_generator, "text_input", "text_output", DataType.BYTES)
    vectors = threads.submit(opened, tensor_encoder, "TEXT", "EMBEDDING", DataType.FP32)
    assert text.result() and vectors.result()
"""
"""Two models that load at the same time, of which each imports another part first."""


@pytest.mark.parametrize(
    "module",
    [
        "penstock_backends.openai_kit.settings",
        "penstock_backends.openai_kit.tensor_encoder",
        "penstock_backends.openai_kit.text_models.text_generator",
        "penstock_backends.openvino_genai.openai_app",
        "penstock_backends.onnxruntime",
    ],
)
def test_backends_are_imported_without_the_kits_packages(module: str) -> None:
    command = [sys.executable, "-c", _PROGRAM.format(module=module)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_models_that_load_at_once_all_have_their_applications() -> None:
    """`openai`, imported in two orders at once, is found half imported by one of them."""
    command = [sys.executable, "-c", _AT_ONCE]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr


def test_what_is_missing_is_missing_in_a_python_that_is_named() -> None:
    """A model's process may be of another environment than the server's."""
    with pytest.raises(BackendNotInstalledError) as missing, kit_imports():
        import no_such_package  # type: ignore[import-not-found]  # noqa: F401
    assert missing.value.message == (
        "they need packages that are not installed: pip install 'penstock[openai]', for"
        f" {sys.executable} (No module named 'no_such_package')"
    )
