"""`model.json` of a vLLM model, and vLLM's environment variables."""

from __future__ import annotations

import getpass
import json
import os
from pathlib import Path
from typing import Any

import pytest

from penstock.core.errors import ModelLoadError
from penstock_backends.vllm.arguments.engine_args import (
    EngineArguments,
    advice,
    prepare_environment,
    read_arguments,
)


def read(version: Path, **values: Any) -> EngineArguments:
    (version / "model.json").write_text(json.dumps({"model": "some/model", **values}))
    return read_arguments(version)


@pytest.mark.contract("VL-01", "R-20")
def test_arguments_are_taken_as_they_are(tmp_path: Path) -> None:
    values = {"model": "some/model", "max_num_seqs": 256, "anything": [1]}
    assert read(tmp_path, **values).values == values


def test_a_path_inside_the_version_directory_is_resolved(tmp_path: Path) -> None:
    (tmp_path / "weights").mkdir()
    arguments = read(tmp_path, model="weights", tokenizer="some/tokenizer")
    assert arguments.values["model"] == str(tmp_path / "weights")
    assert arguments.values["tokenizer"] == "some/tokenizer"
    assert arguments.local


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match=r"'model\.json' containing vllm engine args must be"):
        read_arguments(tmp_path)


@pytest.mark.parametrize("text", ["", "{", "[]"])
def test_a_file_that_is_not_an_object_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "model.json").write_text(text)
    with pytest.raises(ModelLoadError, match=r"model\.json"):
        read_arguments(tmp_path)


@pytest.mark.parametrize("values", [{}, {"model": ""}, {"model": None}, {"model": 7}])
def test_file_without_a_model_is_refused(tmp_path: Path, values: dict[str, Any]) -> None:
    (tmp_path / "model.json").write_text(json.dumps(values))
    with pytest.raises(ModelLoadError, match=r"model\.json' must have 'model': a folder beside it"):
        read_arguments(tmp_path)


@pytest.mark.parametrize(("written", "taken"), [("true", True), (True, True), ("false", False)])
def test_lora_may_be_switched_with_a_string(tmp_path: Path, written: Any, taken: bool) -> None:
    arguments = read(tmp_path, model="m", enable_lora=written)
    assert (arguments.enable_lora, arguments.values["enable_lora"]) == (taken, taken)


@pytest.mark.contract("VL-19")
@pytest.mark.parametrize(
    ("values", "kept"),
    [
        ({}, True),
        ({"disable_log_stats": False}, True),
        ({"disable_log_stats": True}, False),
        ({"disable_log_stats": "true"}, False),
    ],
)
def test_statistics_may_be_switched_off(tmp_path: Path, values: dict[str, Any], kept: bool) -> None:
    assert read(tmp_path, **values).keeps_statistics is kept


@pytest.mark.contract("C-43")
def test_a_quantization_as_type_gets_advice(tmp_path: Path) -> None:
    assert '"quantization": "fp8"' in advice(read(tmp_path, dtype="fp8"), "")
    assert advice(read(tmp_path, model=str(tmp_path), dtype="bfloat16"), "") == ""


def test_taken_port_of_kv_events_gets_advice(tmp_path: Path) -> None:
    events = read(tmp_path, model=str(tmp_path), kv_events_config={"endpoint": "tcp://*:5557"})
    taken = "zmq.error.ZMQError: Address already in use (addr='tcp://*:5557')"
    assert "unload the model before it is loaded again" in advice(events, taken)
    assert advice(events, "out of memory") == ""


def test_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    assert "no folder 'modle' is there" in advice(read(tmp_path, model="modle"), "")


def test_the_operators_environment_comes_first(tmp_path: Path) -> None:
    environment = {"VLLM_CPU_KVCACHE_SPACE": "8", "HF_HUB_OFFLINE": "0"}
    prepare_environment(read(tmp_path, model=str(tmp_path)), environment)
    assert environment == {
        "VLLM_CPU_KVCACHE_SPACE": "8",
        "HF_HUB_OFFLINE": "0",
        "TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS": "0",
        "VLLM_MAX_N_SEQUENCES": "128",
        "VLLM_MEDIA_CONNECTOR": "penstock",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
    }


def test_only_a_local_model_keeps_the_hub_away(tmp_path: Path) -> None:
    local: dict[str, str] = {}
    prepare_environment(read(tmp_path, model=str(tmp_path)), local)
    distant: dict[str, str] = {}
    prepare_environment(read(tmp_path, model="some/model"), distant)
    assert (local["HF_HUB_OFFLINE"], local["VLLM_CPU_KVCACHE_SPACE"]) == ("1", "1")
    assert "HF_HUB_OFFLINE" not in distant


def test_compiled_kernels_outlast_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(getpass, "getuser", lambda: "who/ever")
    environment = {"TMPDIR": "/tmp/own", "PENSTOCK_SHARED_TMPDIR": "/tmp"}
    prepare_environment(read(tmp_path, model="some/model"), environment)
    assert environment["TORCHINDUCTOR_CACHE_DIR"] == "/tmp/torchinductor_who_ever"
    alone: dict[str, str] = {}
    prepare_environment(read(tmp_path, model="some/model"), alone)
    assert "TORCHINDUCTOR_CACHE_DIR" not in alone


def test_a_user_without_a_name_has_a_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nobody() -> str:
        raise KeyError("no such user")

    monkeypatch.setattr(getpass, "getuser", nobody)
    environment = {"PENSTOCK_SHARED_TMPDIR": "/tmp"}
    prepare_environment(read(tmp_path, model="some/model"), environment)
    assert environment["TORCHINDUCTOR_CACHE_DIR"] == f"/tmp/torchinductor_uid_{os.getuid()}"
