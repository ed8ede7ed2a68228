"""The backend without an engine: configuration, environment, rejections."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from penstock.core.config import ModelConfig, TransactionPolicy
from penstock.core.errors import BackendNotInstalledError, ConfigError
from penstock.testing import running
from penstock_backends.vllm import VllmBackend

PROGRAM = """
import sys
import penstock_backends.vllm
heavy = {"vllm", "torch", "msgspec", "PIL", "transformers"} & set(sys.modules)
sys.exit(", ".join(sorted(heavy)) or 0)
"""


def test_importing_the_backend_imports_no_engine() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(find_spec("vllm") is not None, reason="vLLM is installed here")
async def test_a_missing_engine_is_named_with_the_line_that_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("VLLM_NO_USAGE_STATS", "VLLM_CPU_KVCACHE_SPACE", "VLLM_WORKER_MULTIPROC_METHOD"):
        monkeypatch.setenv(name, "0")
    (tmp_path / "model.json").write_text(json.dumps({"model": "some/model"}))
    with pytest.raises(BackendNotInstalledError, match=r"pip install 'penstock\[vllm\]'"):
        async with running(VllmBackend, ModelConfig(name="m"), tmp_path):
            pass


async def test_the_decoupled_policy_is_mandatory(tmp_path: Path) -> None:
    config = ModelConfig(name="m", model_transaction_policy=TransactionPolicy(False))
    with pytest.raises(ConfigError, match=r"^vLLM Triton backend must be configured to use"):
        async with running(VllmBackend, config, tmp_path):
            pass


async def test_images_are_a_declared_input(tmp_path: Path) -> None:
    config = await VllmBackend.complete_config(ModelConfig(), tmp_path, {})
    assert config.inputs_by_name["image"].dims == (-1,)
