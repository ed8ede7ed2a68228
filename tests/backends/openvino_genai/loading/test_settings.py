"""`model.json`, and defaults from the version directory."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.core.config import InstanceGroup, InstanceKind, ModelConfig
from penstock.core.errors import ModelLoadError
from penstock.demo.gguf import Value, write_gguf
from penstock.system.cpu_share import cores
from penstock_backends.openvino_genai.settings import EngineSettings, read_settings, sharing_cores


@pytest.fixture
def version(tmp_path: Path) -> Path:
    """A directory with a model of 4096 tokens context, 3 tokens vocabulary and no weights."""
    metadata: dict[str, Value] = {
        "general.architecture": "llama",
        "llama.context_length": 4096,
        "tokenizer.ggml.tokens": ["a", "b", "c"],
    }
    write_gguf(tmp_path / "model.gguf", metadata, {})
    (tmp_path / "tokenizer.json").write_text("{}")
    return tmp_path


def read(version: Path, **given: Any) -> EngineSettings:
    (version / "model.json").write_text(json.dumps(given))
    return read_settings(version)


def test_without_a_file_the_directory_tells(version: Path) -> None:
    assert read_settings(version) == EngineSettings(
        model=version / "model.gguf",
        tokenizer=version / "tokenizer.json",
        max_model_len=4096,
        num_kv_blocks=2048,
        vocabulary=3,
    )


def test_every_key_is_taken(version: Path) -> None:
    (version / "other.gguf").write_bytes((version / "model.gguf").read_bytes())
    settings = read(
        version,
        model="other.gguf",
        tokenizer="tokenizer.json",
        max_model_len=1,
        num_kv_blocks=2,
        max_num_seqs=3,
        max_num_batched_tokens=4,
        max_num_waiting=5,
        enable_prefix_caching=False,
        top_k_cap=6,
        properties={"INFERENCE_NUM_THREADS": 1},
    )
    assert settings == EngineSettings(
        version / "other.gguf",
        version / "tokenizer.json",
        1,
        2,
        3,
        3,
        4,
        5,
        False,
        6,
        {"INFERENCE_NUM_THREADS": 1},
    )


def test_the_cache_holds_at_least_one_full_context(version: Path) -> None:
    metadata: dict[str, Value] = {
        "general.architecture": "llama",
        "llama.context_length": 131072,
    }
    write_gguf(version / "model.gguf", metadata, {})
    assert read_settings(version).num_kv_blocks == 4096


def test_a_context_cannot_be_longer_than_the_models(version: Path) -> None:
    assert read(version, max_model_len=4096).max_model_len == 4096
    with pytest.raises(ModelLoadError, match=r"'max_model_len' is 4097 .* made for 4096 tokens"):
        read(version, max_model_len=4097)


def test_null_leaves_the_default(version: Path) -> None:
    assert read(version, top_k_cap=None).top_k_cap == 200


def test_an_unknown_key_is_named(version: Path) -> None:
    with pytest.raises(ModelLoadError, match=r"unknown key 'num_blocks' in '.*/model.json'"):
        read(version, num_blocks=1)
    with pytest.raises(ModelLoadError, match=r"; did you mean 'max_num_seqs'\?$"):
        read(version, max_num_seq=1)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("model", 1),
        ("tokenizer", ""),
        ("max_model_len", 0),
        ("num_kv_blocks", "8"),
        ("max_num_seqs", True),
        ("max_num_batched_tokens", 1.5),
        ("max_num_waiting", -1),
        ("enable_prefix_caching", "yes"),
        ("top_k_cap", -1),
        ("properties", []),
    ],
)
def test_a_value_of_the_wrong_kind_is_named(version: Path, key: str, value: Any) -> None:
    with pytest.raises(ModelLoadError, match=f"key '{key}' in "):
        read(version, **{key: value})


@pytest.mark.parametrize("text", ["", "{", "[]", "1"])
def test_a_file_that_is_not_an_object_is_refused(version: Path, text: str) -> None:
    (version / "model.json").write_text(text)
    with pytest.raises(ModelLoadError, match=r"model\.json"):
        read_settings(version)


def test_a_file_that_is_not_gguf_is_refused(version: Path) -> None:
    (version / "model.gguf").write_bytes(b"nonsense")
    with pytest.raises(ModelLoadError, match=r"cannot read '.*model\.gguf': not a GGUF file"):
        read_settings(version)


def test_an_openvino_folder_has_its_configuration_beside_it(version: Path) -> None:
    (version / "model.gguf").unlink()
    (version / "openvino_model.xml").touch()
    (version / "config.json").write_text('{"max_position_embeddings": 512, "vocab_size": 9}')
    settings = read_settings(version)
    assert (settings.model, settings.max_model_len, settings.vocabulary) == (version, 512, 9)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[1]", "config.json must hold an object"),
        ('{"max_position_embeddings": "many"}', "'max_position_embeddings' in config.json must be"),
        ('{"vocab_size": -1}', "'vocab_size' in config.json must be a positive integer, not -1"),
    ],
)
def test_a_configuration_of_another_form_is_refused(version: Path, text: str, why: str) -> None:
    (version / "model.gguf").rename(version / "openvino_model.xml")
    (version / "config.json").write_text(text)
    with pytest.raises(ModelLoadError, match=f"cannot read '.*': {why}"):
        read_settings(version)


def test_instances_share_the_cores_by_default() -> None:
    group = InstanceGroup(kind=InstanceKind.KIND_CPU, count=2)
    config = ModelConfig(name="m", instance_group=(group,))
    settings = EngineSettings(Path("m"), Path("t"), 10, 10, properties={"A": 1})
    shared = sharing_cores(settings, config, "cpu").properties
    assert shared == {"A": 1, "INFERENCE_NUM_THREADS": max(1, cores() // 2)}
    assert sharing_cores(settings, config, "elsewhere") is settings
    own = replace(settings, properties={"INFERENCE_NUM_THREADS": 7})
    assert sharing_cores(own, config, "cpu").properties == {"INFERENCE_NUM_THREADS": 7}
