"""Models that a load refuses, one for each refusal that can be known without running a model."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from io import BytesIO
from zipfile import ZipFile

from onnx import TensorProto, helper

T = (
    'input [ { name: "IN" data_type: TYPE_FP32 dims: [ 4 ] } ]'
    ' output [ { name: "OUT" data_type: TYPE_FP32 dims: [ 4 ] } ] '
)
IDENTITY = f'backend: "identity" {T}'
BATCHED = f"{IDENTITY} max_batch_size: 4 dynamic_batching {{ }} "
ONNX = f'backend: "onnxruntime" {T}'
TEXTS = (
    'input [ { name: "TEXT" data_type: TYPE_STRING dims: [ 1 ] } ]'
    ' output [ { name: "OUT" data_type: TYPE_FP32 dims: [ 4 ] } ] '
)
RAGGED = (
    'backend: "onnxruntime" max_batch_size: 4 input [ { name: "IN" data_type: TYPE_FP32'
    " dims: [ -1 ] allow_ragged_batch: true } ]"
    ' output [ { name: "OUT" data_type: TYPE_FP32 dims: [ -1 ] } ] '
)
FOREST = f'backend: "fil" {T}'
VLLM = 'backend: "vllm" '
GENAI = 'backend: "openvino_genai" '
TRT_LLM = 'backend: "tensorrt_llm" '
GPU = "instance_group [ { kind: KIND_GPU } ] "


@dataclass(frozen=True)
class Row:
    """A model: its configuration and files, the settings of its backend, the GPUs there are.

    `elsewhere` says why a load on this machine tells something else.
    """

    config: str
    files: Mapping[str, str | bytes] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    gpus: tuple[int, ...] = ()
    name: str = "m"
    others: Mapping[str, str] = field(default_factory=dict)
    elsewhere: str = ""


def parameters(**given: str) -> str:
    """Parameters of a model; `__` stands for a dot in their names."""
    return " ".join(
        f"parameters {{ key: {json.dumps(name.replace('__', '.'))}"
        f" value: {{ string_value: {json.dumps(text)} }} }}"
        for name, text in given.items()
    )


def state(fields: str, *more: str) -> str:
    """A model with a state of sequences, and some more of these names."""
    others = "".join(
        f", {{ input_name: '{name}' output_name: 'U' data_type: TYPE_INT32 dims: 1 }}"
        for name in more
    )
    return (
        'backend: "onnxruntime" max_batch_size: 4 '
        f"{T} sequence_batching {{ state [ {{ input_name: 'S' output_name: 'T'"
        f" data_type: TYPE_INT32 dims: [ 1 ] {fields} }}{others} ] }}"
    )


def warmup(tensor: str) -> str:
    """A model with a sample for its start."""
    return (
        f"{BATCHED} model_warmup [ {{ name: 'w' batch_size: 1 inputs {{ key: 'IN' value: {{"
        f" data_type: TYPE_FP32 {tensor} }} }} }} ]"
    )


_BYTES = 'initial_state: [ { name: "i" data_type: TYPE_INT32 dims: [ 1 ] data_file: "f" } ]'
_GRAPH = f'platform: "tensorrt_plan" {T} {GPU} max_batch_size: 4 '
_TF = 'platform: "tensorflow_savedmodel" '
_TF_PYTHON = {"python": sys.executable}


def network(
    kind: int = TensorProto.FLOAT,
    dims: tuple[int | str, ...] = (4,),
    names: tuple[str, str] = ("IN", "OUT"),
    more: tuple[str, ...] = (),
) -> bytes:
    """An ONNX file of an output that is an input, by default with the tensors of `T`."""
    given, made = names
    inputs = [helper.make_tensor_value_info(each, kind, dims) for each in (given, *more)]
    outputs = [helper.make_tensor_value_info(made, kind, dims)]
    nodes = [helper.make_node("Identity", [given], [made])]
    graph = helper.make_graph(nodes, "g", inputs, outputs)
    opset = [helper.make_opsetid("", 20)]
    model = helper.make_model(graph, opset_imports=opset, ir_version=10)
    return bytes(model.SerializeToString())


def weighted(location: str) -> bytes:
    """An ONNX file of a sum with four numbers, which are in a file beside it."""
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, (4,)) for name in ("IN", "OUT")]
    weights = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4])
    weights.data_location = TensorProto.EXTERNAL
    for key, text in (("location", location), ("length", "16")):
        weights.external_data.add(key=key, value=text)
    nodes = [helper.make_node("Add", ["IN", "w"], ["OUT"])]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], [weights])
    opset = [helper.make_opsetid("", 20)]
    model = helper.make_model(graph, opset_imports=opset, ir_version=10)
    return bytes(model.SerializeToString())


def another_network(*given: object, **more: object) -> Row:
    """A model whose file has other tensors than the configuration."""
    return Row(ONNX, {"1/model.onnx": network(*given, **more)})  # type: ignore[arg-type]


CONSTANT = '<net><data element_type="f32" shape="4" offset="16" size="16" /></net>'
"""A file of OpenVINO's with a constant, in bytes of the file beside it."""


def partly(fields: str) -> Row:
    """A model with an input of these fields, whose file tells the output."""
    config = f'backend: "onnxruntime" input [ {{ {fields} }} ]'
    return Row(config, {"1/model.onnx": network()})


def trees(features: int) -> Row:
    """A model of so many features; its file, of LightGBM, has one tree of two features."""
    row = f'dims: [ {features} ] }} ] output [ {{ name: "output__0" data_type: TYPE_FP32 dims: 1'
    head = "tree\nversion=v4\nnum_class=1\nmax_feature_idx=1\nobjective=regression\n"
    tree = (
        "Tree=0\nnum_leaves=2\nnum_cat=0\nsplit_feature=0\nsplit_gain=1\nthreshold=0.5\n"
        "decision_type=2\nleft_child=-1\nright_child=-2\nleaf_value=0.1 0.9\nleaf_weight=1 1\n"
        "leaf_count=1 1\ninternal_value=0\ninternal_weight=2\ninternal_count=2\nis_linear=0\n"
        "shrinkage=1\n"
    )
    return Row(
        f'backend: "fil" input [ {{ name: "input__0" data_type: TYPE_FP32 {row} }} ] '
        + parameters(model_type="lightgbm", is_classifier="false"),
        {"1/model.txt": f"{head}\n{tree}\n\nend of trees\n"},
    )


_ONNX_RUNTIMES_WORDS = "ONNX Runtime says it in its own words"
_ON_THREADS = {"penstock.host": "thread"}
_PYTORCH_FIRST = "the process imports PyTorch first"


def archive(*names: str) -> bytes:
    """A zip with files of these names."""
    written = BytesIO()
    with ZipFile(written, "w") as file:
        for name in names:
            file.writestr(name, "x")
    return written.getvalue()


def accelerated(accelerator: str) -> str:
    """The field that asks for execution accelerators."""
    return f"optimization {{ execution_accelerators {{ {accelerator} }} }}"


def by_tensorrt(parameter: str, value: str) -> Row:
    """A model on ONNX Runtime's provider of TensorRT, with a parameter of it."""
    given = f'parameters {{ key: "{parameter}" value: "{value}" }}'
    asked = accelerated(f'gpu_execution_accelerator [ {{ name: "tensorrt" {given} }} ]')
    return Row(ONNX + GPU + asked, {"1/model.onnx": ""}, gpus=(0,))


def graph_spec(fields: str, most: int = 4) -> str:
    """A plan of TensorRT with a graph to capture."""
    head = _GRAPH if most else _GRAPH.replace("max_batch_size: 4", "")
    return f"{head} optimization {{ cuda {{ graphs: true graph_spec [ {{ {fields} }} ] }} }}"


def spec_input(name: str, *dims: int) -> str:
    return f"input {{ key: '{name}' value: {{ dim: {list(dims)} }} }}"


def _low(text: str) -> str:
    return f"graph_lower_bound {{ batch_size: 1 {text} }}"


ROWS: Mapping[str, Row] = {
    # -- the file ------------------------------------------------------------------------------
    "syntax": Row('backend: "identity"\nmax_batch_size 4'),
    "unknown field": Row('backend: "identity"\nmax_batch_siz: 4'),
    "unknown value": Row(IDENTITY.replace("TYPE_FP32", "TYPE_FLOAT")),
    "enumeration beyond its bits": Row("instance_group [ { kind: 99999999999 } ]"),
    "no file": Row("", {"config.pbtxt/inside": ""}),
    "no backend": Row(T),
    "another name": Row(f'name: "other" {IDENTITY}'),
    "no version": Row(f"{IDENTITY} version_policy {{ specific {{ versions: [ 3 ] }} }}"),
    "no version, and agents": Row(
        f'{IDENTITY} model_repository_agents {{ agents [ {{ name: "another" }} ] }}'
        " version_policy { specific { versions: [ 3 ] } }"
    ),
    # -- all models ----------------------------------------------------------------------------
    "agents": Row(f'{IDENTITY} model_repository_agents {{ agents [ {{ name: "another" }} ] }}'),
    "batch input": Row(
        f"{BATCHED} batch_input [ {{ kind: BATCH_ELEMENT_COUNT target_name: 'N'"
        " data_type: TYPE_FP32 source_input: 'IN' } ]"
    ),
    "no such backend": Row(f'backend: "onnxruntme" {T}'),
    "a path for a backend": Row(f'backend: "../x" {T}'),
    "a library": Row(f'{IDENTITY} runtime: "libmine.so"'),
    "no backend directory": Row(f'backend: "mine" runtime: "model.py" {T}'),
    "not in the backend directory": Row(
        f'backend: "mine" runtime: "model.py" {T}', settings={"backend-directory": "/nonexistent"}
    ),
    "own parameter": Row(IDENTITY + parameters(penstock__hosst="process")),
    "besides what the model completes": Row(
        'backend: "onnxruntime" input [ { name: "IN" data_type: TYPE_FP32 dims: [ 4 ] reshape { } }'
        " ] instance_group [ { kind: KIND_CPU gpus: [ 0 ] } ]",
        {"1/model.onnx": "x"},
        elsewhere="the graph is read first",
    ),
    "another file than is pinned": Row(
        IDENTITY + 'parameters { key: "penstock.sha256:1/weights" value: { string_value:'
        f' "{"0" * 64}" }} }}',
        {"1/weights": "x"},
    ),
    "another file than the agent pins": Row(
        f'{IDENTITY} model_repository_agents {{ agents [ {{ name: "checksum" parameters {{'
        f' key: "MD5:1/weights" value: "{"0" * 32}" }} }} ] }}',
        {"1/weights": "x"},
    ),
    "no file that is pinned": Row(
        IDENTITY + 'parameters { key: "penstock.sha256:1/weights" value: { string_value:'
        f' "{"0" * 64}" }} }}'
    ),
    "tokenizer for OpenAI": Row(IDENTITY + parameters(penstock__openai_tokenizer="nowhere")),
    "a file's name with a control character": Row(
        IDENTITY.replace('"OUT"', '"OUT" label_filename: "a\\001b"')
    ),
    "path outside": Row(IDENTITY.replace('"OUT"', '"OUT" label_filename: "../x"')),
    "default priority": Row(
        f"{IDENTITY} max_batch_size: 4 dynamic_batching {{ priority_levels: 2 }}"
    ),
    "priorities in order": Row(
        f"{IDENTITY} max_batch_size: 4 dynamic_batching {{ priority_levels: 2"
        " default_priority_level: 1 preserve_ordering: true }"
    ),
    "delays in order": Row(
        f"{IDENTITY} max_batch_size: 4 dynamic_batching {{ preserve_ordering: true"
        " default_queue_policy { timeout_action: DELAY default_timeout_microseconds: 1 } }"
    ),
    "priority of a policy": Row(
        f"{IDENTITY} max_batch_size: 4 dynamic_batching {{ priority_levels: 2"
        " default_priority_level: 1 priority_queue_policy { key: 3 value: { } } }"
    ),
    "preferred size too large": Row(
        f"{IDENTITY} max_batch_size: 4 dynamic_batching {{ preferred_batch_size: 8 }}"
    ),
    "preferred size of nothing": Row(
        f"{IDENTITY} max_batch_size: 4 dynamic_batching {{ preferred_batch_size: -1 }}"
    ),
    "slot utilization": Row(
        f"{IDENTITY} max_batch_size: 4 sequence_batching {{ direct {{ minimum_slot_utilization: 2"
        " } }"
    ),
    "cache and decoupled": Row(
        f"{IDENTITY} response_cache {{ enable: true }} model_transaction_policy {{ decoupled: true"
        " }"
    ),
    "cache and sequences": Row(
        f"{IDENTITY} response_cache {{ enable: true }} sequence_batching {{}}"
    ),
    "metric without identifier": Row(f"{IDENTITY} model_metrics {{ metric_control {{ }} }}"),
    "metric without family": Row(
        f"{IDENTITY} model_metrics {{ metric_control {{ metric_identifier {{ }} }} }}"
    ),
    "metric without options": Row(
        f"{IDENTITY} model_metrics {{ metric_control {{ metric_identifier {{ family: 'f' }} }} }}"
    ),
    "metric without buckets": Row(
        f"{IDENTITY} model_metrics {{ metric_control {{ metric_identifier {{ family: 'f' }}"
        " histogram_options { } } }"
    ),
    "falling buckets": Row(
        f"{IDENTITY} model_metrics {{ metric_control {{ metric_identifier {{ family: 'f' }}"
        " histogram_options { buckets: [ 2, 1 ] } } }"
    ),
    "negative batch": Row(f"{IDENTITY} max_batch_size: -1"),
    "platform of another": Row(f'backend: "onnxruntime" platform: "tensorrt_plan" {T}'),
    "unknown platform": Row(f'platform: "caffe" {T}'),
    "gpus of a CPU": Row(f"{IDENTITY} instance_group [ {{ kind: KIND_CPU gpus: [ 0 ] }} ]"),
    "no such GPU": Row(
        f"{IDENTITY} instance_group [ {{ kind: KIND_GPU gpus: [ 7 ] }} ]", gpus=(0,)
    ),
    "profile": Row(f"{IDENTITY} instance_group [ {{ profile: 'p' }} ]"),
    # -- parameters of hosts, queues and batches --------------------------------------------------
    "host": Row(f'backend: "python" {T}' + parameters(penstock__host="thread"), {"1/model.py": ""}),
    "of processes": Row(IDENTITY + parameters(penstock__hang_seconds="3")),
    "window": Row(IDENTITY + parameters(penstock__host="process", penstock__response_window="x")),
    "hang": Row(IDENTITY + parameters(penstock__host="process", penstock__hang_seconds="-1")),
    "restart": Row(
        IDENTITY
        + parameters(
            penstock__host="process", penstock__hang_seconds="0", penstock__restart_hung="true"
        )
    ),
    "private folder": Row(VLLM + parameters(penstock__private_tmp="false")),
    "flag": Row(IDENTITY + parameters(penstock__host="process", penstock__private_tmp="maybe")),
    "seconds": Row(
        IDENTITY + parameters(penstock__host="process", penstock__execution_timeout_seconds="0")
    ),
    "cores": Row(IDENTITY + parameters(penstock__host="process", penstock__engine_cores="x")),
    "tokens": Row(IDENTITY + parameters(penstock__max_queued_requests="4")),
    "number of tokens": Row(VLLM + parameters(penstock__max_queued_tokens="many")),
    "elements without batches": Row(IDENTITY + parameters(penstock__max_batch_elements="4")),
    "strategy": Row(BATCHED + parameters(TRITON_BATCH_STRATEGY_PATH="lib.so")),
    "buckets": Row(BATCHED + parameters(penstock__length_buckets="8,4")),
    "elements": Row(BATCHED + parameters(penstock__max_batch_elements="0")),
    "gathering without batches": Row(IDENTITY + parameters(penstock__gather_percent="4")),
    "gathering": Row(BATCHED + parameters(penstock__gather_percent="400")),
    # -- warm-up and states -----------------------------------------------------------------------
    "sample of any size": Row(warmup("dims: [ -1 ] zero_data: true")),
    "sample of too many rows": Row(
        warmup("dims: [ 4 ] zero_data: true").replace("batch_size: 1", "batch_size: 9")
    ),
    "sample without data": Row(warmup("dims: [ 4 ]")),
    "short sample": Row(warmup('dims: [ 4 ] input_data_file: "w"'), {"warmup/w": "x"}),
    "no file of a sample": Row(warmup('dims: [ 4 ] input_data_file: "w"')),
    "state twice": Row(state("", "S")),
    "two initial states": Row(state("initial_state: [ { zero_data: true }, { zero_data: true } ]")),
    "type of a state": Row(state('initial_state: [ { name: "i" data_type: TYPE_FP32 dims: 1 } ]')),
    "state without name": Row(state("initial_state: [ { data_type: TYPE_INT32 dims: 1 } ]")),
    "rank of a state": Row(
        state('initial_state: [ { name: "i" data_type: TYPE_INT32 dims: [ 1, 1 ] } ]')
    ),
    "variable state": Row(
        state('initial_state: [ { name: "i" data_type: TYPE_INT32 dims: [ -1 ] } ]')
    ),
    "size of a state": Row(
        state('initial_state: [ { name: "i" data_type: TYPE_INT32 dims: [ 2 ] } ]')
    ),
    "state without data": Row(
        state('initial_state: [ { name: "i" data_type: TYPE_INT32 dims: [ 1 ] } ]')
    ),
    "short state": Row(state(_BYTES), {"initial_state/f": "x"}),
    # -- small backends ---------------------------------------------------------------------------
    "identity": Row(IDENTITY.replace('"OUT" data_type: TYPE_FP32', '"OUT" data_type: TYPE_INT8')),
    "delay": Row(IDENTITY + parameters(execute_delay_ms="soon")),
    "square": Row('backend: "square"'),
    "square's tensors": Row(
        f'backend: "square" {T} model_transaction_policy {{ decoupled: true }}'
    ),
    "repeat in batches": Row(f'backend: "repeat" max_batch_size: 4 {T}'),
    "repeat": Row(f'backend: "repeat" {T}'),
    "repeat's tensors": Row(
        f'backend: "repeat" {T} model_transaction_policy {{ decoupled: true }}'
    ),
    "memory limit": Row(
        f'backend: "python" {T}' + parameters(penstock__memory_limit_bytes="much"),
        {"1/model.py": ""},
    ),
    "no model.py": Row(f'backend: "python" {T}'),
    "environment": Row(
        f'backend: "python" {T}' + parameters(EXECUTION_ENV_PATH="/nowhere.tar.gz"),
        {"1/model.py": ""},
    ),
    "environment without Python": Row(
        f'backend: "python" {T}' + parameters(EXECUTION_ENV_PATH="$$TRITON_MODEL_DIRECTORY/env"),
        {"1/model.py": "", "env/x": ""},
    ),
    # -- engines of tensors -----------------------------------------------------------------------
    "no model.onnx": Row(ONNX),
    "a folder without model.onnx": Row(ONNX, {"1/model.onnx/data": ""}),
    "a file that is cut short": Row(
        ONNX, {"1/model.onnx": network()[:-1]}, elsewhere=_ONNX_RUNTIMES_WORDS
    ),
    "a file of something else": Row(
        ONNX, {"1/model.onnx": "<html>"}, elsewhere=_ONNX_RUNTIMES_WORDS
    ),
    "a file without a graph": Row(ONNX, {"1/model.onnx": ""}, elsewhere=_ONNX_RUNTIMES_WORDS),
    "weights that are not beside the graph": Row(
        ONNX, {"1/model.onnx": weighted("blob")}, elsewhere=_ONNX_RUNTIMES_WORDS
    ),
    "weights that are cut short": Row(
        ONNX, {"1/model.onnx": weighted("blob"), "1/blob": "x" * 15}, elsewhere=_ONNX_RUNTIMES_WORDS
    ),
    "weights outside of the model": Row(
        ONNX,
        {"1/model.onnx": weighted("../blob"), "blob": "x" * 16},
        elsewhere=_ONNX_RUNTIMES_WORDS,
    ),
    "a datatype of another graph": another_network(TensorProto.INT64),
    "dimensions of another graph": another_network(dims=("n", 5)),
    "inputs of another graph": another_network(names=("X", "OUT")),
    "fewer inputs than the graph": another_network(more=("MORE",)),
    "outputs of another graph": another_network(names=("IN", "Y")),
    "batches of a graph of one row": Row(
        f"{ONNX} max_batch_size: 4", {"1/model.onnx": network(dims=(1, 4))}
    ),
    "an input without a name": partly("data_type: TYPE_FP32 dims: [ 4 ]"),
    "an input without dims": partly('name: "IN" data_type: TYPE_FP32'),
    "an input of another graph": partly('name: "X" data_type: TYPE_FP32 dims: [ 4 ]'),
    "dims beside what is completed": partly('name: "IN" data_type: TYPE_FP32 dims: [ 5 ]'),
    "a datatype beside what is completed": partly('name: "IN" data_type: TYPE_FP16 dims: [ 4 ]'),
    "execution mode": Row(ONNX + parameters(execution_mode="2"), {"1/model.onnx": ""}),
    "cache folder": Row(ONNX + parameters(penstock__optimized_model_cache="here")),
    "threads": Row(ONNX + parameters(intra_op_thread_count="all")),
    "arena": Row(ONNX + parameters(enable_mem_arena="perhaps")),
    "accelerator": Row(
        ONNX + accelerated('cpu_execution_accelerator [ { name: "abacus" } ]'),
        {"1/model.onnx": ""},
    ),
    "precision": by_tensorrt("precision_mode", "FP4"),
    "accelerator's parameter": by_tensorrt("speed", "high"),
    "accelerator's switch": by_tensorrt("trt_fp16_enable", "perhaps"),
    "CUDA's number": Row(
        ONNX + GPU + parameters(arena_extend_strategy="x"),
        {"1/model.onnx": ""},
        gpus=(0,),
        elsewhere="the installed build has no CUDA",
    ),
    "CUDA's choice": Row(
        ONNX + GPU + parameters(arena_extend_strategy="7"),
        {"1/model.onnx": ""},
        gpus=(0,),
        elsewhere="the installed build has no CUDA",
    ),
    "no model.xml": Row(f'backend: "openvino" {T}'),
    "no weights beside model.xml": Row(
        f'backend: "openvino" {T}',
        {"1/model.xml": CONSTANT},
        elsewhere="OpenVINO says it in its own words",
    ),
    "OpenVINO's kinds": Row(f'backend: "openvino" {T} instance_group [ {{ kind: KIND_MODEL }} ]'),
    "features of another forest": trees(4),
    "form of trees": Row(FOREST + parameters(model_type="catboost")),
    "kind of trees": Row(FOREST),
    "a folder in place of trees": Row(
        FOREST + parameters(is_classifier="true"), {"1/xgboost.model/x": ""}
    ),
    "flag of trees": Row(FOREST + parameters(is_classifier="perhaps")),
    "threads of trees": Row(FOREST + parameters(is_classifier="true", cpu_nthread="all")),
    "threshold": Row(FOREST + parameters(is_classifier="true", threshold="high")),
    "trees on GPUs": Row(FOREST + GPU + parameters(is_classifier="true"), gpus=(0,)),
    "no model.pt": Row(f'platform: "pytorch_libtorch" {T}'),
    "a file that is none of PyTorch's": Row(
        f'platform: "pytorch_libtorch" {T}', {"1/model.pt": "x"}, elsewhere=_PYTORCH_FIRST
    ),
    "a pickle": Row(
        f'platform: "pytorch_libtorch" {T}',
        {"1/model.pt": b"\x80\x02x"},
        elsewhere=_PYTORCH_FIRST,
    ),
    "names in an archive": Row(
        f'platform: "pytorch_libtorch" {T}',
        {"1/model.pt": archive("../../model/constants.pkl")},
        elsewhere=_PYTORCH_FIRST,
    ),
    "names in an archive of weights": Row(
        f'platform: "pytorch_libtorch" {T} runtime: "model.py"',
        {"1/model.py": "", "1/model.pt": archive("../../data.pkl")},
        elsewhere=_PYTORCH_FIRST,
    ),
    "switch of PyTorch": Row(
        f'platform: "pytorch_libtorch" {T}' + parameters(INFERENCE_MODE="perhaps")
    ),
    "weights for PyTorch on threads": Row(
        f'platform: "pytorch_libtorch" {T} runtime: "model.py"' + parameters(**_ON_THREADS),
        {"1/model.py": "", "1/model.pt": archive("m/data.pkl")},
        elsewhere=_PYTORCH_FIRST,
    ),
    "switch of a process for PyTorch on threads": Row(
        f'platform: "pytorch_libtorch" {T}' + parameters(DISABLE_CUDNN="true", **_ON_THREADS)
    ),
    "number of PyTorch": Row(
        f'platform: "pytorch_libtorch" {T}' + parameters(INTRA_OP_THREAD_COUNT="all")
    ),
    "options of torch.compile": Row(
        f'platform: "pytorch_libtorch" {T}' + parameters(TORCH_COMPILE_OPTIONAL_PARAMETERS="{")
    ),
    "list for torch.compile": Row(
        f'platform: "pytorch_libtorch" {T}' + parameters(TORCH_COMPILE_OPTIONAL_PARAMETERS="[]")
    ),
    "states of PyTorch": Row(
        state("").replace('backend: "onnxruntime"', 'platform: "pytorch_libtorch"')
    ),
    "signature on OpenVINO": Row(_TF + T + parameters(TF_GRAPH_TAG="train")),
    "operators on OpenVINO": Row(_TF + T + parameters(TF_INIT_OPS_FILE="init.json")),
    "threads of TensorFlow": Row(
        _TF + T + parameters(TF_NUM_INTRA_THREADS="all"), settings=_TF_PYTHON
    ),
    "no SavedModel": Row(_TF, settings=_TF_PYTHON),
    "a broken SavedModel": Row(
        _TF, {"1/model.savedmodel/saved_model.pb": "\x07"}, settings=_TF_PYTHON
    ),
    "memory of TensorFlow": Row(
        _TF,
        {"1/model.savedmodel/saved_model.pb": ""},
        settings={**_TF_PYTHON, "gpu-memory-fraction": "2"},
    ),
    "padded outputs": Row(ONNX + parameters(penstock__padded_outputs="OUT")),
    "padding of fixed inputs": Row(ONNX + parameters(penstock__padding="IN")),
    "padding of texts": Row(
        RAGGED.replace("TYPE_FP32", "TYPE_STRING", 1) + parameters(penstock__padding="IN")
    ),
    "padding's value": Row(RAGGED + parameters(penstock__padding="IN=none")),
    "scattered output": Row(
        'backend: "onnxruntime" max_batch_size: 4 input [ { name: "IN" data_type: TYPE_FP32'
        ' dims: [ -1 ] allow_ragged_batch: true } ] output [ { name: "OUT" data_type: TYPE_FP32'
        ' dims: [ -1, 2 ] } ] batch_output [ { target_name: "OUT"'
        ' kind: BATCH_SCATTER_WITH_INPUT_SHAPE source_input: "IN" } ]'
    ),
    "field of a parameter": Row(ONNX + parameters(penstock__image='{"inputs": "IN"}')),
    "missing field": Row(ONNX + parameters(penstock__image="{}")),
    "parameter that is no JSON": Row(ONNX + parameters(penstock__image="{")),
    "parameter of another kind": Row(ONNX + parameters(penstock__image="4")),
    "sound without a rate": Row(ONNX + parameters(penstock__audio='{"input": "IN"}')),
    "files for numbers": Row(ONNX + parameters(penstock__image='{"input": "IN"}')),
    "files twice": Row(
        f'backend: "onnxruntime" {TEXTS}'
        + parameters(penstock__image='[{"input": "TEXT"}, {"input": "TEXT"}]')
    ),
    "files and texts": Row(
        f'backend: "onnxruntime" {TEXTS}'
        + parameters(penstock__image='{"input": "TEXT"}', penstock__tokenizer="tokenizer.json")
    ),
    "limit of texts": Row(
        f'backend: "onnxruntime" {TEXTS}'
        + parameters(penstock__tokenizer="tokenizer.json", penstock__max_tokens="none")
    ),
    "padding of an encoder": Row(
        RAGGED + parameters(penstock__tokenizer="tokenizer.json", penstock__padding="IN=0")
    ),
    "an encoder of numbers": Row(ONNX + parameters(penstock__tokenizer="tokenizer.json")),
    "pooling of another kind": Row(
        f'backend: "onnxruntime" {TEXTS}'
        + parameters(penstock__tokenizer="tokenizer.json", penstock__pooling="max")
    ),
    "pooling without a tokenizer": Row(ONNX + parameters(penstock__pooling="mean")),
    "normalization that is no switch": Row(ONNX + parameters(penstock__normalize="yes")),
    "normalization without pooling": Row(ONNX + parameters(penstock__normalize="true")),
    "no tokenizer": Row(
        f'backend: "onnxruntime" {TEXTS}' + parameters(penstock__tokenizer="tokenizer.json"),
        {"1/model.onnx": ""},
        elsewhere="the engine opens the graph first",
    ),
    "plans on CPUs": Row(f'platform: "tensorrt_plan" {T} instance_group [ {{ kind: KIND_CPU }} ]'),
    "format of a plan's tensors": Row(
        _GRAPH.replace('"IN"', '"IN" is_non_linear_format_io: true'), gpus=(0,)
    ),
    "graph without batch": Row(graph_spec("batch_size: 2", 0), gpus=(0,)),
    "graph of too many": Row(graph_spec("batch_size: 9"), gpus=(0,)),
    "graph's bound": Row(
        graph_spec("batch_size: 1 graph_lower_bound { batch_size: 2 }"), gpus=(0,)
    ),
    "graph's inputs": Row(graph_spec(f"batch_size: 1 {spec_input('IN', 4)} {_low('')}"), gpus=(0,)),
    "graph's rank": Row(
        graph_spec(f"batch_size: 1 {spec_input('IN', 4)} {_low(spec_input('IN', 4, 4))}"),
        gpus=(0,),
    ),
    "graph's negative size": Row(
        graph_spec(f"batch_size: 1 {spec_input('IN', 4)} {_low(spec_input('IN', -4))}"), gpus=(0,)
    ),
    "graph's size": Row(
        graph_spec(f"batch_size: 1 {spec_input('IN', 4)} {_low(spec_input('IN', 5))}"), gpus=(0,)
    ),
    "TensorRT's switches": Row(
        _GRAPH,
        {"1/model.plan": ""},
        settings={"version-compatible": "perhaps"},
        gpus=(0,),
        elsewhere="TensorRT is asked for the plan's batch size first",
    ),
    "TensorRT's choice": Row(
        _GRAPH,
        {"1/model.plan": ""},
        settings={"execution-policy": "perhaps"},
        gpus=(0,),
        elsewhere="TensorRT is asked for the plan's batch size first",
    ),
}
