"""Where a model's weights and tokenizer are, and what an error says where they are not."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.core.errors import ModelLoadError
from penstock_backends.openvino_genai.model_files import find_model, find_tokenizer


def put(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()


@pytest.mark.parametrize(
    ("files", "named", "found"),
    [
        (["model.gguf"], None, "model.gguf"),
        (["model.gguf", "draft.gguf"], None, "model.gguf"),
        (["Qwen3-0.6B-Q4_K_M.gguf"], None, "Qwen3-0.6B-Q4_K_M.gguf"),
        (["openvino_model.xml"], None, "."),
        (["a.gguf", "b.gguf"], "b.gguf", "b.gguf"),
        (["int4/openvino_model.xml"], "int4", "int4"),
        (["int4/openvino_model.xml"], "int4/openvino_model.xml", "int4"),
        (["int4/llama.gguf"], "int4", "int4/llama.gguf"),
    ],
)
def test_a_model_is_named_or_found(
    tmp_path: Path, files: list[str], named: str | None, found: str
) -> None:
    put(tmp_path, *files)
    assert find_model(tmp_path, named) == tmp_path / found


@pytest.mark.parametrize(
    ("files", "named", "why"),
    [
        ([], None, r"no model\.gguf or openvino_model\.xml in '[^']*'$"),
        ([], "none.gguf", r"no model at '.*none\.gguf', which 'model' in model\.json names"),
        (
            ["b.gguf", "a.gguf"],
            None,
            r"has several models: a\.gguf, b\.gguf; 'model' in model\.json",
        ),
        (["x-00001-of-00002.gguf", "x-00002-of-00002.gguf"], None, "in parts, .*: join them"),
        (["m/x-00002-of-00002.gguf"], "m", "has a GGUF file in parts"),
        (["model.safetensors"], None, r"in '.*'; make one .*: optimum-cli export openvino --model"),
        (["pytorch_model-00001-of-00002.bin"], None, "optimum-cli export openvino"),
        (["openvino_language_model.xml"], None, "a model that takes images is not supported"),
        (["m/openvino_model.xml"], None, r"for the one in folder 'm' write"),
        (["m/llama.gguf"], None, r"for the one in folder 'm' write"),
        (["a/b/llama.gguf"], "a", r"folder 'a/b' write {\"model\": \"a/b\"} in model\.json"),
        (["m/tokenizer.json"], "m", r"no model\.gguf or openvino_model\.xml in '.*/m'$"),
    ],
)
def test_an_error_says_what_to_do(
    tmp_path: Path, files: list[str], named: str | None, why: str
) -> None:
    put(tmp_path, *files)
    with pytest.raises(ModelLoadError, match=why):
        find_model(tmp_path, named)


def test_a_folder_beside_the_versions_is_named_as_well(tmp_path: Path) -> None:
    put(tmp_path, "shared/m/llama.gguf", "1/config.json")
    with pytest.raises(ModelLoadError, match=r'write {"model": "\.\./shared/m"} in model\.json'):
        find_model(tmp_path / "1", str(tmp_path / "shared"))


@pytest.mark.parametrize(
    ("files", "named", "model", "found"),
    [
        (["tokenizer.json", "m/tokenizer.json"], None, "m", "tokenizer.json"),
        (["m/tokenizer.json"], None, "m", "m/tokenizer.json"),
        (["m/tokenizer.json", "m/llama.gguf"], None, "m/llama.gguf", "m/tokenizer.json"),
        (["t.json", "tokenizer.json"], "t.json", "", "t.json"),
    ],
)
def test_a_tokenizer_is_named_or_found(
    tmp_path: Path, files: list[str], named: str | None, model: str, found: str
) -> None:
    put(tmp_path, *files)
    assert find_tokenizer(tmp_path, named, tmp_path / model) == tmp_path / found


@pytest.mark.parametrize("named", [None, "other.json"])
def test_a_tokenizer_must_exist(tmp_path: Path, named: str | None) -> None:
    put(tmp_path, "model.gguf")
    with pytest.raises(ModelLoadError, match=r"no tokenizer at '.*': tokenizer\.json is needed"):
        find_tokenizer(tmp_path, named, tmp_path / "model.gguf")
