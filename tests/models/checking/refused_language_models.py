"""Language models that a load refuses, by what is wrong with their files and settings."""

from __future__ import annotations

import json
from collections.abc import Mapping

from models.checking.refused_rows import CONSTANT, GENAI, GPU, TRT_LLM, VLLM, Row, parameters
from models.sizing.headers.files import safetensors


def model_json(**values: object) -> dict[str, str]:
    return {"1/model.json": json.dumps(values)}


_EMPTY_GENAI = {"1/model.gguf": "GGUF", "1/tokenizer.json": "{}"}
_FOLDER_GENAI = {"1/openvino_model.xml": "", "1/openvino_model.bin": "", "1/tokenizer.json": "{}"}
_WEIGHTS = safetensors({"a": ("F32", [2], 8)})


def checkpoint(files: Mapping[str, str | bytes]) -> Row:
    """A model whose folder of weights has these files."""
    inside = {f"1/weights/{name}": content for name, content in files.items()}
    says_it = "vLLM says it in its own words"
    return Row(VLLM, {**model_json(model="weights"), **inside}, elsewhere=says_it)


def index(*files: str) -> dict[str, str]:
    """The index of these files of weights."""
    weights = {f"t{number}": file for number, file in enumerate(files)}
    return {"model.safetensors.index.json": json.dumps({"weight_map": weights})}


ROWS: Mapping[str, Row] = {
    "not decoupled": Row(VLLM + "model_transaction_policy { decoupled: false }"),
    "batches of a language model": Row(VLLM + "max_batch_size: 4"),
    "interval": Row(VLLM + parameters(penstock__stream_interval_ms="-1")),
    "no model.json": Row(VLLM),
    "broken model.json": Row(VLLM, {"1/model.json": '{\n  "model": }'}),
    "list in model.json": Row(VLLM, {"1/model.json": "[]"}),
    "no model": Row(VLLM, model_json(dtype="auto")),
    "openai of vLLM": Row(VLLM, model_json(model="x", openai=3)),
    "openai's argument": Row(VLLM, model_json(model="x", openai={"chat_templat": "x"})),
    "openai's unknown fields": Row(VLLM, model_json(model="x", openai={"unknown_fields": "x"})),
    "openai's length": Row(VLLM, model_json(model="x", openai={"default_max_tokens": "x"})),
    "no adapters": Row(VLLM, model_json(model="x", enable_lora=True)),
    "broken adapters": Row(
        VLLM, {**model_json(model="x", enable_lora=True), "1/multi_lora.json": "{"}
    ),
    "list of adapters": Row(
        VLLM, {**model_json(model="x", enable_lora=True), "1/multi_lora.json": "[]"}
    ),
    "folders of adapters": Row(
        VLLM + parameters(penstock__adapter_folders="here"), model_json(model="x")
    ),
    "one GPU for two": Row(VLLM + GPU, model_json(model="x", tensor_parallel_size=2), gpus=(0,)),
    "GPU named twice": Row(
        VLLM + GPU + parameters(GPU_DEVICE_IDS="0"), model_json(model="x"), gpus=(0,)
    ),
    "no numbers of GPUs": Row(
        VLLM + "instance_group [ { kind: KIND_MODEL } ]" + parameters(GPU_DEVICE_IDS="a"),
        model_json(model="x"),
    ),
    "a GPU twice": Row(
        VLLM + "instance_group [ { kind: KIND_MODEL } ]" + parameters(GPU_DEVICE_IDS="0,0"),
        model_json(model="x"),
    ),
    "too few GPUs": Row(
        VLLM + "instance_group [ { kind: KIND_MODEL } ]" + parameters(GPU_DEVICE_IDS="0,1"),
        model_json(model="x", tensor_parallel_size=4),
    ),
    "weights that are a part of them": checkpoint({"model.safetensors": _WEIGHTS[:-1]}),
    "weights that are a page": checkpoint({"model.safetensors": "<html>" * 9}),
    "weights without names": checkpoint({"model.safetensors": b"\2" + bytes(7) + b"[]"}),
    "weights that are not there": checkpoint({"a.safetensors": _WEIGHTS, **index("b.safetensors")}),
    "an index that is none": checkpoint(
        {"a.safetensors": _WEIGHTS, "model.safetensors.index.json": "[]"}
    ),
    "constants that are cut short": Row(
        GENAI,
        {**_FOLDER_GENAI, "1/openvino_model.xml": CONSTANT, "1/openvino_model.bin": bytes(31)},
        elsewhere="OpenVINO says it in its own words",
    ),
    "no weights": Row(GENAI),
    "named weights": Row(GENAI, model_json(model="there")),
    "weights in parts": Row(GENAI, {"1/m-00001-of-00002.gguf": ""}),
    "several weights": Row(GENAI, {"1/a.gguf": "", "1/b.gguf": ""}),
    "no tokenizer of weights": Row(GENAI, {"1/model.gguf": "GGUF"}),
    "weights that are none": Row(GENAI, _EMPTY_GENAI),
    "length beyond the model's": Row(
        GENAI,
        {
            **_FOLDER_GENAI,
            **model_json(max_model_len=99),
            "1/config.json": '{"max_position_embeddings": 9}',
        },
    ),
    "template": Row(GENAI, {**_FOLDER_GENAI, **model_json(openai={"chat_template": "x.jinja"})}),
    "broken settings": Row(GENAI, {**_FOLDER_GENAI, "1/model.json": "{"}),
    "list of settings": Row(GENAI, {**_FOLDER_GENAI, "1/model.json": "[]"}),
    "unknown setting": Row(GENAI, {**_FOLDER_GENAI, **model_json(max_model_length=9)}),
    "wrong setting": Row(GENAI, {**_FOLDER_GENAI, **model_json(max_model_len="x")}),
    "openai's key": Row(GENAI, {**_FOLDER_GENAI, **model_json(openai={"templat": "x"})}),
    "openai's value": Row(GENAI, {**_FOLDER_GENAI, **model_json(openai={"chat_template": 3})}),
    "no settings of TensorRT-LLM": Row(TRT_LLM),
    "no model of TensorRT-LLM": Row(TRT_LLM, model_json(dtype="auto")),
    "processors": Row(TRT_LLM, model_json(model="x", logits_post_processors=[])),
    "server's settings": Row(TRT_LLM, model_json(model="x", triton_config=[1])),
    "server's setting": Row(TRT_LLM, model_json(model="x", triton_config={"decouple": True})),
    "server's number": Row(TRT_LLM, model_json(model="x", triton_config={"max_batch_size": "x"})),
    "openai of TensorRT-LLM": Row(TRT_LLM, model_json(model="x", openai=[1])),
    "its argument": Row(TRT_LLM, model_json(model="x", openai={"parser": "x"})),
    "its text": Row(TRT_LLM, model_json(model="x", openai={"tool_call_parser": 3})),
    "its broken file": Row(TRT_LLM, {"1/model.json": "{"}),
    "its list": Row(TRT_LLM, {"1/model.json": "[]"}),
    "its broken YAML": Row(
        TRT_LLM,
        {
            "1/model.yaml": "a: [",
        },
    ),
    "a plan": Row(TRT_LLM, {"1/engine.plan": "ftrt"}),
    "kind of batching": Row(
        'backend: "tensorrtllm" ' + parameters(gpt_model_type="V1"), name="tensorrt_llm"
    ),
    "no engine": Row('backend: "tensorrtllm"', name="tensorrt_llm"),
}
