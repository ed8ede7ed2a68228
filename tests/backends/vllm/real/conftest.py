"""One engine for all tests of this folder, which run only where vLLM is installed."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from penstock.core.config import ModelConfig
from penstock.testing import RunningInstance, running
from penstock_backends.vllm import VllmBackend

collect_ignore_glob = [] if "PENSTOCK_TEST_VLLM" in os.environ else ["*"]

SETTINGS = {
    "model": "model",
    "dtype": "float32",
    "enforce_eager": True,
    "gpu_memory_utilization": 0.3,
    "max_model_len": 1024,
    "max_num_seqs": 16,
    "max_num_batched_tokens": 1024,
    "enable_prefix_caching": False,
    "enable_lora": "true",
    "max_lora_rank": 8,
}


def add_adapter(model: Path, folder: Path) -> None:
    """A random adapter, strong enough to change every text."""
    import numpy as np
    from safetensors.numpy import save_file

    config = json.loads((model / "config.json").read_text())
    hidden, rank = config["hidden_size"], 8
    rows = config["num_attention_heads"] * config["head_dim"]
    random = np.random.default_rng(1)
    tensors = {}
    for layer in range(config["num_hidden_layers"]):
        name = f"base_model.model.model.layers.{layer}.self_attn.q_proj"
        tensors[f"{name}.lora_A.weight"] = random.standard_normal((rank, hidden), np.float32)
        tensors[f"{name}.lora_B.weight"] = random.standard_normal((rows, rank), np.float32)
    folder.mkdir()
    save_file(tensors, folder / "adapter_model.safetensors", metadata={"format": "pt"})
    description = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "r": rank,
        "lora_alpha": 16,
        "lora_dropout": 0.0,
        "bias": "none",
        "target_modules": ["q_proj"],
        "base_model_name_or_path": "tiny_llm",
    }
    (folder / "adapter_config.json").write_text(json.dumps(description))


@pytest.fixture(scope="session")
def version(checkpoint_version: Path) -> Path:
    (checkpoint_version / "model.json").write_text(json.dumps(SETTINGS))
    (checkpoint_version / "multi_lora.json").write_text('{"loud": "loud"}')
    add_adapter(checkpoint_version / "model", checkpoint_version / "loud")
    return checkpoint_version


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def instance(version: Path) -> AsyncIterator[RunningInstance]:
    async with running(VllmBackend, ModelConfig(name="m"), version) as instance:
        yield instance
