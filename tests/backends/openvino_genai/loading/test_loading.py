"""Settings and files that the real engine is loaded with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from backends.conftest import F32, write_settings
from backends.openvino_genai.asking import ask, opened
from penstock.core.config import InstanceKind, ModelConfig, TransactionPolicy
from penstock.core.errors import ConfigError, ModelLoadError
from penstock.testing import RunningInstance, running
from penstock_backends.openvino_genai import OpenVinoGenAiBackend

pytest.importorskip("openvino_genai", reason="OpenVINO GenAI is not installed")


async def load(version: Path, **settings: Any) -> None:
    write_settings(version, **settings)
    async with opened(version):
        pass


async def test_an_unknown_key_fails_the_load(own_gguf_version: Path) -> None:
    with pytest.raises(ModelLoadError, match="unknown key 'kv_blocks'"):
        await load(own_gguf_version, kv_blocks=1)


async def test_an_unknown_property_fails_the_load(own_gguf_version: Path) -> None:
    with pytest.raises(ModelLoadError, match="Unsupported property NO_SUCH_THING"):
        await load(own_gguf_version, properties=F32 | {"NO_SUCH_THING": "1"})


async def test_a_model_without_weights_fails_the_load(own_gguf_version: Path) -> None:
    model = own_gguf_version / "model.gguf"
    head = model.read_bytes()[:400_000]
    model.unlink()
    model.write_bytes(head)
    with pytest.raises(ModelLoadError, match=r"model\.gguf"):
        await load(own_gguf_version)


async def test_a_tokenizer_that_is_none_fails_the_load(own_gguf_version: Path) -> None:
    tokenizer = own_gguf_version / "tokenizer.json"
    tokenizer.unlink()
    tokenizer.write_text("{}")
    with pytest.raises(ModelLoadError, match=r"cannot read '.*tokenizer\.json'"):
        await load(own_gguf_version)


async def test_a_tokenizer_of_another_model_fails_the_load(own_gguf_version: Path) -> None:
    """Its tokens would lie outside the model's vocabulary, which the engine does not check."""
    tokenizer = own_gguf_version / "tokenizer.json"
    content = json.loads(tokenizer.read_text())
    content["model"]["vocab"] |= {f"extra{i}": 4096 + i for i in range(100)}
    tokenizer.unlink()
    tokenizer.write_text(json.dumps(content))
    with pytest.raises(ModelLoadError, match="do not belong together"):
        await load(own_gguf_version)


async def test_without_model_json_the_model_is_found(own_gguf_version: Path) -> None:
    async with opened(own_gguf_version) as instance:
        assert (await ask(instance, max_tokens=2)).finals[-1]


async def test_the_decoupled_policy_is_mandatory(gguf_version: Path) -> None:
    config = ModelConfig(name="m", model_transaction_policy=TransactionPolicy(False))
    with pytest.raises(ConfigError, match="decoupled model transaction policy"):
        async with running(OpenVinoGenAiBackend, config, gguf_version):
            pass


async def test_an_instance_belongs_on_the_cpu(instance: RunningInstance) -> None:
    assert [group.kind for group in instance.config.instance_group] == [InstanceKind.KIND_CPU]
