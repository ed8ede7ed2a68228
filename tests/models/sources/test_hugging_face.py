"""Folders in the layout of Hugging Face: what is made of them, without an engine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from models.sizing.headers.files import external, onnx, written
from penstock.core.config import ModelConfig
from penstock.models.config.pbtxt import parse_pbtxt
from penstock.models.sources import hugging_face
from penstock.models.sources.draft import SourceError, Wishes
from penstock.models.sources.recognise import model_of
from penstock.settings import ModelFile, Task

LLAMA = {"architectures": ["LlamaForCausalLM"]}


def _write(folder: Path, config: dict[str, Any] | None, *names: str) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    folder.mkdir(exist_ok=True)
    if config is not None:
        (folder / "config.json").write_text(json.dumps(config))
    return folder


def _made(source: Path, wishes: Wishes | None = None) -> tuple[ModelFile, ModelConfig]:
    draft = model_of(str(source), wishes or Wishes())
    assert draft is not None
    file = draft.model_file(wishes or Wishes())
    return file, parse_pbtxt(file.texts["config.pbtxt"].encode(), "config.pbtxt")


def _refusal(source: Path, wishes: Wishes | None = None) -> str:
    with pytest.raises(SourceError) as refused:
        model_of(str(source), wishes or Wishes())
    return str(refused.value)


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The engines that are there; none but those that the test adds."""
    there = set[str]()
    monkeypatch.setattr(hugging_face, "find_spec", lambda name: object() if name in there else None)
    return there


# -- language models -------------------------------------------------------------------------------


def test_weights_of_transformers_are_vllms(tmp_path: Path, engines: set[str]) -> None:
    names = ("model.safetensors", "pytorch_model.bin", "tokenizer.json", "README.md", "onnx/a.onnx")
    folder = _write(tmp_path / "llama", LLAMA, *names)
    file, config = _made(folder)
    assert config.backend == "vllm"
    assert json.loads(file.texts["1/model.json"]) == {"model": "weights"}
    inside = {name.removeprefix("1/weights/") for name in file.links}
    assert inside == {"config.json", "model.safetensors", "tokenizer.json"}


def test_what_is_installed_decides_between_two_formats(tmp_path: Path, engines: set[str]) -> None:
    names = ("model.safetensors", "openvino/openvino_model.xml", "openvino/openvino_model.bin")
    folder = _write(tmp_path / "llama", LLAMA, *names, "tokenizer.json")
    file, config = _made(folder)
    assert config.backend == "openvino_genai"
    assert {"1/openvino_model.xml", "1/openvino_model.bin", "1/tokenizer.json"} <= {*file.links}
    engines.add("vllm")
    assert _made(folder)[1].backend == "vllm"


def test_a_gguf_file_is_a_language_model(tmp_path: Path) -> None:
    folder = _write(tmp_path / "story", None, "a.gguf", "b.gguf", "tokenizer.json")
    file, config = _made(folder / "a.gguf")
    assert config.backend == "openvino_genai"
    assert {*file.links} == {"1/a.gguf", "1/tokenizer.json"}
    assert file.name == "a"


def test_a_gguf_file_without_its_tokenizer_is_refused_by_its_own_path(tmp_path: Path) -> None:
    folder = _write(tmp_path / "story", None, "a.gguf")
    told = f"'{folder}' has no tokenizer.json, which is needed beside a.gguf"
    assert told in _refusal(folder)
    assert told in _refusal(folder / "a.gguf")


def test_of_many_quantizations_the_usual_one_is_taken(tmp_path: Path) -> None:
    quantized = ("m-Q2_K.gguf", "m-Q4_K_M.gguf", "m-Q8_0.gguf")
    folder = _write(tmp_path / "story", None, *quantized, "tokenizer.json")
    assert "1/m-Q4_K_M.gguf" in _made(folder)[0].links
    (folder / "m-Q4_K_M.gguf").unlink()
    assert "several GGUF files: m-Q2_K.gguf, m-Q8_0.gguf" in _refusal(folder)


def test_a_language_model_without_weights_is_refused(tmp_path: Path) -> None:
    folder = _write(tmp_path / "llama", LLAMA, "tokenizer.json")
    assert "has no weights" in _refusal(folder)


# -- encoders --------------------------------------------------------------------------------------


def _encoder(folder: Path, *modules: str, **pooling: bool) -> Path:
    _write(folder, {"architectures": ["BertModel"]}, "onnx/model.onnx", "tokenizer.json")
    types = [{"type": f"sentence_transformers.models.{name}"} for name in modules]
    (folder / "modules.json").write_text(json.dumps(types))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    return folder


def test_pooling_is_that_of_sentence_transformers(tmp_path: Path) -> None:
    folder = _encoder(tmp_path / "bge", "Transformer", "Pooling", pooling_mode_cls_token=True)
    (folder / "tokenizer_config.json").write_text('{"model_max_length": 1e30}')
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 512}')
    file, config = _made(folder)
    assert config.backend == "onnxruntime"
    assert config.parameter("penstock.pooling") == "cls"
    assert config.parameter("penstock.normalize") is None
    assert config.parameter("penstock.max_tokens") == "512"
    assert file.links["1/model.onnx"] == folder / "onnx" / "model.onnx"


def test_a_layer_behind_the_graph_is_refused(tmp_path: Path) -> None:
    folder = _encoder(tmp_path / "dense", "Transformer", "Pooling", "Dense")
    assert "optimum-cli export onnx" in _refusal(folder)


def test_weights_alone_are_pooled_by_vllm(tmp_path: Path) -> None:
    folder = _write(tmp_path / "bge", {"architectures": ["BertModel"]}, "model.safetensors")
    file, config = _made(folder)
    assert config.backend == "vllm"
    assert json.loads(file.texts["1/model.json"])["runner"] == "pooling"


def test_external_data_keeps_the_name_by_which_the_graph_finds_it(tmp_path: Path) -> None:
    names = ("onnx/model.onnx", "onnx/model.onnx_data", "tokenizer.json")
    folder = _write(tmp_path / "e", {"architectures": ["BertModel"]}, *names)
    assert {"1/model.onnx", "1/model.onnx_data"} <= {*_made(folder)[0].links}


def test_external_data_of_any_name_is_linked(tmp_path: Path) -> None:
    folder = _write(tmp_path / "e", {"architectures": ["BertModel"]}, "tokenizer.json")
    graph = onnx(external(1, [2], location="blobs/w"))
    (folder / "onnx/blobs").mkdir(parents=True)
    written(folder / "onnx/model.onnx", graph)
    assert "no file 'onnx/blobs/w', where onnx/model.onnx has its weights" in _refusal(folder)
    written(folder / "onnx/blobs/w", bytes(8))
    assert {"1/model.onnx", "1/blobs/w"} <= {*_made(folder)[0].links}


def test_images_are_read_as_transformers_reads_them(tmp_path: Path) -> None:
    labels = {"id2label": {"1": "dog", "0": "cat"}}
    config = {"architectures": ["ViTForImageClassification"], **labels}
    folder = _write(tmp_path / "vit", config, "onnx/model.onnx")
    told = {"size": {"height": 224, "width": 200}, "resample": 2, "rescale_factor": 0.5}
    told |= {"image_mean": [0.5, 0.5, 0.5], "image_std": [1, 1, 1]}
    (folder / "preprocessor_config.json").write_text(json.dumps(told))
    file, made = _made(folder)
    fields = json.loads(made.parameter("penstock.image") or "")
    assert fields["resize"] == [200, 224]
    assert (fields["resample"], fields["scale"]) == ("bilinear", 0.5)
    assert file.texts["labels.txt"] == "cat\ndog\n"


# -- what the user says ----------------------------------------------------------------------------


def test_an_unknown_architecture_needs_a_task(tmp_path: Path) -> None:
    folder = _write(tmp_path / "x", {"architectures": ["XSomething"]}, "model.onnx")
    assert "give --task, one of generate, embed, rerank, classify" in _refusal(folder)
    (folder / "tokenizer.json").touch()
    config = _made(folder, Wishes(task=Task.EMBED))[1]
    assert config.parameter("penstock.pooling") == "mean"


def test_wishes_are_lines_of_the_configuration(tmp_path: Path) -> None:
    folder = _write(tmp_path / "llama", LLAMA, "model.safetensors")
    wishes = Wishes(device="gpu:0,2", instances=3, version=7)
    file, config = _made(folder, wishes)
    (group,) = config.instance_group
    assert (group.kind, group.count, group.gpus) == ("KIND_GPU", 3, (0, 2))
    assert "7/model.json" in file.texts
    with pytest.raises(SourceError, match="batches by itself"):
        _made(folder, Wishes(max_batch_size=4))


_ENDLESS = '{"architectures": ["XForSequenceClassification"], "num_labels": 1e999}'
_MANY = '{"architectures": ["XForSequenceClassification"], "num_labels": 1000000000000}'


@pytest.mark.parametrize(
    "content", ["[1]", "{", "[" * 100_000, '{"architectures": 3}', _ENDLESS, _MANY]
)
def test_what_is_no_configuration_is_refused(tmp_path: Path, content: str) -> None:
    folder = _write(tmp_path / "x", None, "model.safetensors")
    (folder / "config.json").write_text(content)
    assert str(folder) in _refusal(folder)


def test_what_a_stranger_writes_stays_in_a_comment(tmp_path: Path) -> None:
    told = 'X\nmodel_operations { op_library_filename: "a" }\n# BertModel'
    config = {"architectures": [told], "id2label": {"0": "a\nb", "1": "c\ud800"}}
    folder = _write(tmp_path / "x", config, "onnx/model.onnx", "tokenizer.json")
    file, made = _made(folder, Wishes(task=Task.CLASSIFY))
    assert made.model_operations is None
    assert file.texts["labels.txt"] == "a b\nc \n"
    config["architectures"] = [f"{told}Model"]
    (folder / "config.json").write_text(json.dumps(config))
    assert _made(folder)[1].model_operations is None


@pytest.mark.parametrize("name", ["..", ".", ".hidden"])
def test_a_name_that_no_model_may_have_is_refused(tmp_path: Path, name: str) -> None:
    folder = _write(tmp_path / "x", LLAMA, "model.safetensors")
    draft = model_of(str(folder), Wishes(), name)
    assert draft is not None
    with pytest.raises(SourceError, match="name"):
        draft.model_file(Wishes())


def test_a_source_above_has_the_name_of_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "net" / "here").mkdir(parents=True)
    (tmp_path / "net" / "model.onnx").touch()
    monkeypatch.chdir(tmp_path / "net" / "here")
    draft = model_of("../model.onnx", Wishes())
    assert draft is not None
    assert draft.name == "net"


def test_a_head_of_a_language_model_is_one(tmp_path: Path) -> None:
    config = {"architectures": ["GPT2LMHeadModel"]}
    assert _made(_write(tmp_path / "gpt2", config, "model.safetensors"))[1].backend == "vllm"


def test_weights_of_openvino_are_not_those_of_transformers(
    tmp_path: Path, engines: set[str]
) -> None:
    engines.add("vllm")
    folder = _write(tmp_path / "ov", LLAMA, "openvino_model.xml", "openvino_model.bin")
    assert _made(folder)[1].backend == "openvino_genai"


@pytest.mark.parametrize("names", [["max_tokens"], ["cls_token", "mean_tokens"], []])
def test_pooling_that_is_not_there_is_refused(tmp_path: Path, names: list[str]) -> None:
    pooling = {f"pooling_mode_{name}": True for name in names} | {"pooling_mode_lasttoken": False}
    folder = _encoder(tmp_path / "e", "Transformer", "Pooling", **pooling)
    assert "pools its vectors by" in _refusal(folder)


def test_a_repository_takes_no_wishes(tmp_path: Path) -> None:
    _write(tmp_path / "models" / "a" / "1", None, "model.onnx")
    assert "is a repository" in _refusal(tmp_path / "models", Wishes(device="cpu"))


def test_a_folder_of_models_is_a_repository(tmp_path: Path) -> None:
    _write(tmp_path / "models" / "a" / "1", None, "model.onnx")
    assert model_of(str(tmp_path / "models"), Wishes()) is None


# -- TensorRT-LLM and NeMo -------------------------------------------------------------------------


@pytest.mark.contract("SD-02")
def test_engines_of_tensorrt_llm_are_served_by_it(tmp_path: Path) -> None:
    folder = _write(tmp_path / "llama", None, "rank0.engine", "rank1.engine", "tokenizer.json")
    told = {"pretrained_config": {"mapping": {"world_size": 2, "tp_size": 2}}}
    (folder / "config.json").write_text(json.dumps(told))
    file, config = _made(folder)
    assert config.backend == "tensorrt_llm"
    assert "tensor_parallel_size: 2\n" in file.texts["1/model.yaml"]
    assert "1/weights/rank1.engine" in file.links
    (folder / "rank1.engine").unlink()
    assert "has 1 of the 2 files" in _refusal(folder)
