"""Repositories elsewhere: what of them is fetched for a check, and what their places are called."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.object_store import ObjectStore, object_store
from models.checking.house import write_model
from models.checking.refused_ensembles import ROWS
from models.checking.refused_rows import CONSTANT, GENAI, IDENTITY, ONNX, VLLM
from models.remote.opening import KEYS
from penstock.cli import main

_WEIGHTS = bytes((1 << 24) + 1)


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ObjectStore]:
    """A store with an empty bucket, which the environment has the keys of."""
    for name, value in {**KEYS, "XDG_CACHE_HOME": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    with object_store() as store:
        yield store


def _put(store: ObjectStore, name: str, config: str) -> None:
    store.put(f"{name}/config.pbtxt", config)
    store.put(f"{name}/1/", "")


def test_places_are_addresses(store: ObjectStore, capsys: pytest.CaptureFixture[str]) -> None:
    _put(store, "m", 'backend: "identity"\nmax_batch: 4')
    _put(store, "n", IDENTITY.replace("[ 4 ]", "[ 0 ]", 1))
    assert main(["check", store.address, "--strict"]) == 1
    text = capsys.readouterr().out
    assert f"{store.address}/m/config.pbtxt:2:1: error: " in text
    assert f"{store.address}/n/config.pbtxt:1:" in text


def test_weights_are_not_fetched(store: ObjectStore, capsys: pytest.CaptureFixture[str]) -> None:
    store.put("m/config.pbtxt", ONNX)
    store.put("m/1/model.onnx", _WEIGHTS)
    assert main(["check", store.address]) == 0
    text = capsys.readouterr().out
    assert "m: will load, as far as can be known" in text
    assert f"what is in '{store.address}/m/1/model.onnx', which is too large" in text
    assert store.gets["m/config.pbtxt"] > 0
    assert store.gets["m/1/model.onnx"] == 0


@pytest.mark.parametrize(
    ("config", "file", "others"),
    [
        (GENAI, "model.gguf", ["tokenizer.json"]),
        ('platform: "tensorflow_savedmodel"', "model.savedmodel/saved_model.pb", []),
        (VLLM, "model.safetensors", ["model.json"]),
    ],
)
def test_what_large_files_say_is_left_open(
    store: ObjectStore,
    capsys: pytest.CaptureFixture[str],
    config: str,
    file: str,
    others: list[str],
) -> None:
    store.put("m/config.pbtxt", config)
    store.put(f"m/1/{file}", _WEIGHTS)
    for other in others:
        store.put(f"m/1/{other}", '{"model": "."}')
    python = f"--backend-config=tensorflow,python={sys.executable}"
    assert main(["check", store.address, python]) == 0
    text = capsys.readouterr().out
    assert "m: will load, as far as can be known" in text
    assert f"not known: what is in '{store.address}/m/1/{file}', which is too large" in text
    assert store.gets[f"m/1/{file}"] == 0


def test_constants_of_a_file_that_is_left_out_are_there(
    store: ObjectStore, capsys: pytest.CaptureFixture[str]
) -> None:
    store.put("m/config.pbtxt", GENAI)
    store.put("m/1/tokenizer.json", "{}")
    store.put("m/1/openvino_model.xml", CONSTANT)
    store.put("m/1/openvino_model.bin", _WEIGHTS)
    assert main(["check", store.address]) == 0
    assert "m: will load" in capsys.readouterr().out


def test_pins_of_files_that_are_left_out_are_left_open(
    store: ObjectStore, capsys: pytest.CaptureFixture[str]
) -> None:
    pin = 'parameters {{ key: "penstock.sha256:1/{}" value: {{ string_value: "{}" }} }}'
    for name, file in (("m", "weights"), ("n", "small")):
        store.put(f"{name}/config.pbtxt", IDENTITY + pin.format(file, "0" * 64))
        store.put(f"{name}/1/weights", _WEIGHTS)
        store.put(f"{name}/1/small", "x")
    assert main(["check", store.address]) == 1
    text = capsys.readouterr().out
    assert "m: will load, as far as can be known" in text
    assert "n: will not load" in text


def test_only_the_named_models_and_what_they_need_are_fetched(
    store: ObjectStore, capsys: pytest.CaptureFixture[str]
) -> None:
    row = ROWS["types"]
    for name, config in {"e": row.config, **row.others, "aside": IDENTITY}.items():
        _put(store, name, config)
    assert main(["check", store.address, "e"]) == 1
    assert "inconsistent data type" in capsys.readouterr().out
    assert {key.partition("/")[0] for key in store.gets} == {"e", "one", "two"}


def test_steps_of_an_ensemble_may_lie_in_another_place(
    store: ObjectStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    row = ROWS["types"]
    write_model(tmp_path / "local", "e", row.config)
    for name, config in row.others.items():
        _put(store, f"steps/{name}", config)
    _put(store, "steps/aside", IDENTITY)
    _put(store, "rest/e2", row.config)
    assert main(["check", str(tmp_path / "local"), f"{store.address}/steps", "e"]) == 1
    assert "inconsistent data type" in capsys.readouterr().out
    assert main(["check", f"{store.address}/rest", f"{store.address}/steps", "e2"]) == 1
    assert "inconsistent data type" in capsys.readouterr().out
    assert not [key for key in store.gets if key.startswith("steps/aside")]


def test_steps_are_those_of_the_configuration_that_is_chosen(
    store: ObjectStore, capsys: pytest.CaptureFixture[str]
) -> None:
    row = ROWS["types"]
    for name, config in row.others.items():
        _put(store, name, config)
    store.put("e/configs/other.pbtxt", row.config)
    store.put("e/1/", "")
    assert main(["check", store.address, "e", "--model-config-name=other"]) == 1
    assert "inconsistent data type" in capsys.readouterr().out


def test_a_bucket_and_a_folder_are_checked_as_one(
    store: ObjectStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _put(store, "m", IDENTITY)
    (tmp_path / "local" / "m" / "1").mkdir(parents=True)
    (tmp_path / "local" / "m" / "config.pbtxt").write_text(IDENTITY)
    assert main(["check", store.address, str(tmp_path / "local")]) == 1
    assert "not unique across all model repositories" in capsys.readouterr().out


def test_a_model_whose_keys_are_no_paths_is_told(
    store: ObjectStore, capsys: pytest.CaptureFixture[str]
) -> None:
    _put(store, "m", IDENTITY)
    store.put("n/1/../../../x", "x")
    assert main(["check", store.address]) == 1
    text = capsys.readouterr().out
    assert "m: will load" in text
    assert "n: will not load" in text


def test_a_bucket_that_is_not_there_has_status_2(
    store: ObjectStore, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", store.address.replace("/bucket", "/nowhere")]) == 2
    assert capsys.readouterr().err.startswith("penstock check: ")


def test_nothing_is_left_behind_but_the_cache(store: ObjectStore, tmp_path: Path) -> None:
    _put(store, "m", IDENTITY)
    main(["check", store.address])
    assert list((tmp_path / "penstock" / "repository" / "runs").iterdir()) == []
