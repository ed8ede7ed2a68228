"""Advice: what to write in place of what a load refuses, by the text of its refusal."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from penstock.core.nearest_name import nearest_name

_TABLE: Sequence[tuple[str, str]] = (
    (r"TensorRT backend supports only GPU device",
     "--gpus=N for the machine that is meant, or the ONNX model with backend: \"onnxruntime\""),
    (r"gpu id (?P<id>\d+).* are: (?P<ids>[\d, ]+)", "gpus: [ {ids} ], or --gpus=N for the machine"
     " that is meant"),
    (r"Python backend based backend library", "the file in --backend-directory, in the folder"
     " of the backend"),
    (r"it is no SavedModel", "the whole folder, as tf.saved_model.save writes it"),
    (r"cannot have empty reshape", "max_batch_size above 0, or a reshape of one dimension"),
    (r"expects (?P<count>\d+) source input", "as many names in source_input: {count}"),
    (r"unexpected batch input data type", "data_type: TYPE_FP32 or TYPE_INT32"),
    (r"unknown source input name", "the name of an input"),
    (r"unknown target output name", "the name of an output"),
    (r"target output name .* only be specified once", "another name for one of the two"),
    (r"more than one from 'int32_false_true'", "one of the three"),
    (r"is specified for multiple control kinds", "another control tensor for each kind"),
    (r"must not specify either 'int32_false_true'", "data_type alone"),
    (r"data type for control .* Allowed data types are (?P<types>.*)", "one of {types}"),
    (r"non-existing (?P<kind>input|output)  in model (?P<model>\S+)",
     "the name of an {kind} of model '{model}' as the key"),
    (r"Couldn't parse integer", "a whole number"),
    (r"Value out of range", "a number that the field can hold"),
    (r"bytes that are not UTF-8", "text in UTF-8"),
    (r"it is not a file", "a file of that name in place of what lies there"),
    (r"unable to find backend library",
     'runtime: "model.py", or a backend that is installed'),
    (r"needs --backend-directory", "--backend-directory=DIR, where that backend lies"),
    (r"pins, cannot be read", "the file that is pinned, or no pin for it"),
    (r"(openai_)?tokenizer': '.*' is neither in",
     "the file of the tokenizer, or its path from the version's folder"),
    (r"is no path: it has a character", "a name without control characters"),
    (r"its member '.*' is no path", "the archive written anew, with paths in its own folder"),
    (r"'penstock.hang_seconds' is 0", "penstock.hang_seconds above 0, or leave it out"),
    (r"cannot be 'false'|is for language models|holds for a whole process|takes no files|pads its"
     r" texts itself", "leave it out"),
    (r"(must be 'true' or 'false'|is true or false), (got|not) '",
     'string_value: "true", or "false"'),
    (r"must be '<first>-<last>'", 'string_value: "0-3", the first core and the last'),
    (r"a library for another server's interface",
     "penstock.max_batch_elements, or leave it out"),
    (r"[Ss]tate input name '.*' specified more than once", "another input_name for one of the two"),
    (r"exactly one or zero element", "one initial_state, or none"),
    (r"does not match the state data type", "the data_type of the state"),
    (r"size of 'state' dimensions|match 'state' dim", "the dims of the state"),
    (r"contains variable dimensions", "dims without -1 in initial_state"),
    (r"to have state_data set", "zero_data: true, or data_file"),
    (r"has no bin/python", "an environment as venv or conda-pack makes it"),
    (r"execution_mode are 0 or 1", 'string_value: "0", or "1"'),
    (r"unsupported precision mode", 'value: "FP32", "FP16" or "BF16"'),
    (r"unsupported arena_extend_strategy", 'string_value: "0", or "1"'),
    (r"is provided for .* Accelerator|unknown argument '", "leave it out, or its right name"),
    (r"to boolean", '"true" or "false"'),
    (r"to integral number", "a whole number"),
    (r"not recognized as a valid serialization",
     'model_type "xgboost", "xgboost_json", "xgboost_ubj", "lightgbm" or "treelite_checkpoint"'),
    (r"'is_classifier' is missing",
     'parameters { key: "is_classifier" value { string_value: "true" } }, or "false"'),
    (r"is no file$", "the model's file in place of what lies there"),
    (r"it is empty|it is no file of PyTorch",
     "the whole file, as torch.jit.save or torch.export.save writes it"),
    (r"would hold up the server",
     "a file of torch.jit.save or torch.export.save, or leave penstock.host out"),
    (r"is no JSON", "JSON: double quotes, no comma behind the last entry"),
    (r"<name>__<index>", 'names that end with "__" and a number, such as input__0'),
    (r"which cannot be chosen|cannot be followed", "leave it out, or pip install tensorflow"),
    (r"does not hold numbers", "an input that holds numbers"),
    (r"as many dimensions as its source input", "dims with as many entries as those of the input"),
    (r"needs the field '(?P<field>\w+)'", '"{field}" in the JSON of the parameter'),
    (r"is given files twice", "one of the two parameters"),
    (r"a text encoder needs one input",
     'input [ { name: "TEXT" data_type: TYPE_STRING dims: [ 1 ] } ]'),
    (r"'penstock.pooling' is one of", 'string_value: "mean", "cls" or "last"'),
    (r"'penstock.pooling' is of text encoders", "penstock.tokenizer beside it, or leave it out"),
    (r"goes with 'penstock.pooling'", "penstock.pooling beside it, or leave it out"),
    (r"Non-linear IO format", "three dims, or no is_non_linear_format_io"),
    (r"'batch_size' to be >= 1 and <= (?P<most>\d+)", "batch_size: {most}, or less"),
    (r"<= graph spec 'batch_size'", "a batch_size no larger than the graph's"),
    (r"expects shape for input '(?P<name>[^']*)'", 'input {{ key: "{name}" ... }} there'),
    (r"to have '(?P<count>\d+)' dimensions, got", "as many dimensions as the input has: {count}"),
    (r"to have dimension (?P<size>[<>]= \d+)", "a dimension {size}"),
    (r"must hold a (JSON object|mapping)", "names and values in braces, not a list"),
    (r"must have 'model':|must say which 'model'",
     '"model": a folder beside it, or a name on the hub'),
    (r"must be 'refuse' or 'ignore'", '"refuse" or "ignore"'),
    (r"cannot find \S+/multi_lora.json",
     "a multi_lora.json there: names of adapters and their paths"),
    (r"is not an absolute path", "a path that begins with /"),
    (r"KIND_GPU is currently for single-GPU", "kind: KIND_MODEL"),
    (r"is for instances of KIND_MODEL", "leave it out, or kind: KIND_MODEL"),
    (r"names a GPU twice", "each GPU once"),
    (r"names \d+ GPUs, but .* is (?P<count>\d+)", "{count} GPUs"),
    (r"no model.gguf or openvino_model.xml", "one of the two there, with its tokenizer"),
    (r"which 'model' in model.json names", '"model": the name of what is there'),
    (r"a GGUF file in parts", "one file of all its parts"),
    (r"has several models", '"model": the name of one of them'),
    (r"no tokenizer at", "a tokenizer.json there"),
    (r"but the model was made for (?P<most>\d+) tokens", '"max_model_len": {most}, or less'),
    (r"no chat template at", "the file there, or its right name here"),
    (r"Failed to parse YAML", "YAML: see the line and column in the reason"),
    (r"is a plan of TensorRT, not an engine", "the folder of an engine, with its config.json"),
    (r"'gpt_model_type' must be", 'string_value: "inflight_fused_batching"'),
    (r"'penstock.sha256' is written for each file",
     'parameters { key: "penstock.sha256:1/model.onnx" value { string_value: "..." } }'),
    (r"expected one of", "one of the names that are listed, or leave it out"),
    (r"another member of oneof", "one of the two fields"),
    (r"unable to find backend '", "backend: one of those that are installed, as listed"),
    (r"ignore version directory", "a number without leading zeros for the folder's name"),
    (r"version directory is not present", "the number of a folder that is there"),
    (r"without effect", "leave it out"),
    (r"specifies multiple", "one control tensor of each kind"),
    (r"has no attribute '(?P<name>\w+)'", "class {name} in the file, or its name behind"
     " default_model_filename, as in model.py:NAME"),
    (r"directory name '(?P<dir>[^']*)' for model '(?P<name>[^']*)'",
     'name: "{dir}", or no name at all; or rename the folder to {name}'),
    (r"Could not determine backend", 'backend: "onnxruntime" (or "python", "openvino", ...), or a'
     " file in the version's folder whose name says it, such as model.onnx"),
    (r"unexpected platform type", 'backend: "onnxruntime" (or another) in place of platform'),
    (r"unexpected 'platform' and 'backend' pair", "leave platform out: backend says it all"),
    (r"'max_batch_size' must be non-negative", "max_batch_size: 0 for a model without batches"),
    (r"preferred (batch )?size must be <= max batch size",
     "preferred_batch_size of at most max_batch_size, or a larger max_batch_size"),
    (r"preferred (batch )?size must be positive", "preferred_batch_size: [ 4, 8 ], or none at all"),
    (r"must specify 'name'", 'name: "..." as the model calls the tensor'),
    (r"must specify 'data_type'", "data_type: TYPE_FP32 (or what the model has)"),
    (r"must specify 'dims'", "dims: [ ... ] without the batch's dimension, -1 where it varies"),
    (r"must be integer >= 1, or -1", "dims of 1 or more, and -1 where the size varies"),
    (r"different (size|number of variable-size dimensions) for dims and reshape",
     "reshape: { shape: [ ... ] } with as many elements as dims"),
    (r"NHWC/NCHW require 3 dims", "dims: [ 3, 224, 224 ], or no format"),
    (r"default priority level must be", "default_priority_level: 1 (up to priority_levels)"),
    (r"priority queue policy must have", "keys of priority_queue_policy from 1 to priority_levels"),
    (r"Only one priority level|can not have DELAY", "preserve_ordering: false"),
    (r"Response Cache does not currently support",
     "response_cache { enable: false }, or leave it out"),
    (r"control tensor must have a name", 'control_input [ { name: "START" ... } ]'),
    (r"must specify either 'int32_false_true'", "int32_false_true: [ 0, 1 ]"),
    (r"must have exactly 2 entries", "two values, for false and true: [ 0, 1 ]"),
    (r"metric (control|identifier) must specify|histogram options must",
     'metric_control [ { metric_identifier { family: "..." } histogram_options { buckets: [ 1, 5 ]'
     " } } ]"),
    (r"no GPUs are available|GPU id|specifies no GPUs",
     "kind: KIND_CPU, or --gpus=N for the machine that is meant"),
    (r"but specifies one or more GPUs", "kind: KIND_GPU, or no gpus"),
    (r"only supported for (the )?TensorRT|supports only GPU device",
     'leave it out, or serve a plan with platform: "tensorrt_plan"'),
    (r"allowed .*puts are: (?P<names>.*)", "one of these names: {names}"),
    (r"not declared: (?P<names>.*)", "an input for each of these: {names}"),
    (r"model provides (?P<type>TYPE_\w+)", "data_type: {type}"),
    (r"the first dimension must be -1", "max_batch_size: 0, and the whole shape in dims"),
    (r"model expects shape \[-?\d+,?(?P<dims>[^]]*)\].* being the batch", "dims: [ {dims} ]"),
    (r"model expects shape \[(?P<dims>[^]]*)\]", "dims: [ {dims} ]"),
    (r"external data in '(?P<name>[^']*)'", "the whole file '{name}' beside the graph, which has"
     " weights in it"),
    (r"external data at .* no file beside it", "a graph whose weights lie in its own folder"),
    (r"cut short|not an ONNX file|header of safetensors|that overlap|that is none: ",
     "the whole file: what lies there is not one, or a part of one"),
    (r"names '(?P<name>[^']*)', which is not beside it", "the whole file '{name}' there"),
    (r"has constants that '(?P<name>[^']*)' beside it does not hold", "the whole file '{name}'"),
    (r"is no index of weights", "the index that came with the weights"),
    (r"cannot be read: No such file", "the file that the link stands for"),
    (r"must stay within the model directory", "a path below the model's folder, without '..'"),
    (r"ensemble scheduling must be set", "ensemble_scheduling { step [ ... ] }"),
    (r"whose platform is not ensemble", 'platform: "ensemble", and no backend'),
    (r"must have platform type 'ensemble'", 'platform: "ensemble", and no backend'),
    (r"should not be specified for ensemble|can not be specified for ensemble",
     "leave it out here: it belongs to the models of the steps"),
    (r"must specify 'step'", "step [ { model_name: ... input_map ... output_map ... } ]"),
    (r"must specify '(?P<field>model_name|input_map|output_map)' in step",
     "{field} in that step"),
    (r"only once for ensemble", "another name for one of the two tensors"),
    (r"is not used|is unused|is not written", "the tensor's name in an input_map or output_map of a"
     " step, spelled as there, or leave it out"),
    (r"models that are not available or ambiguous: (?P<model>.*)",
     "a folder '{model}' in the repository, or the right model_name in the step"),
    (r"circular dependency", "steps that do not lead back to the ensemble itself"),
    (r"required version (?P<version>\d+) is not loaded",
     "model_version: -1 in the step, or a version_policy of its model that selects {version}"),
    (r"depends on '(?P<model>[^']*)'", "mend '{model}' first: see what is found there"),
    (r"inconsistent (data type|shape)",
     "the same data_type and dims in the models of both steps, or a step between them"),
    (r"non-existing (input|output) (?P<tensor>\S+) in model (?P<model>\S+)",
     "a key that model '{model}' has in place of '{tensor}'"),
    (r"is not mapped to any ensemble", "an input_map for it, or optional: true in its model"),
    (r"only allows maximum batch size", "a max_batch_size no larger than those of its steps"),
    (r"decoupled models", "steps whose inputs come from one decoupled model only"),
    (r"at least one version must be available",
     "a folder with a number for its name, such as '1', that version_policy selects"),
    (r"is a path|path is not a backend", 'backend: "python", a name'),
    (r"not supported by this version of Penstock|is not supported by backend",
     "leave the field out"),
    (r"not unique across", "one folder of that name in all repositories"),
    (r"model not found", "the name of a folder in the repository"),
    (r"file '?(?P<file>\S+?)'? (does not exist|is neither)",
     "the file {file}, or the name of one that is there, such as in default_model_filename"),
    (r"unable to find '(?P<file>[^']*)'",
     "the file {file}, or the name of one that is there, such as in default_model_filename"),
    (r"'model.json' containing vllm engine args",
     'a model.json there, with at least {{"model": "..."}}'),
    (r"'model.yaml' containing", "a model.yaml there, with at least 'model: ...'"),
    (r"failed to open text file for read (?P<file>[^:]+)",
     "the file '{file}' in the model's folder, or its right name here"),
    (r"expects (?P<size>\d+) bytes", "a file of {size} bytes, or dims that fit it"),
    (r"input_data_type set", "zero_data: true, random_data: true or input_data_file"),
    (r"failed to run warmup sample .* max allowed is (?P<most>\d+)",
     "batch_size of at most {most} in the warm-up sample, or a larger max_batch_size"),
    (r"variable-size dimensions are specified", "dims without -1 in the warm-up sample"),
    (r"input byte size mismatch|unexpected shape|expect(s|ed) \d+ inputs|unexpected inference",
     "the inputs of the model, each once, with its own dims and data_type"),
    (r"its hash is (?P<hash>\w+)", "the file that is pinned; or, if this one is right, {hash}"),
    (r"decoupled transaction policy|use decoupled|decoupled: true",
     "model_transaction_policy {{ decoupled: true }}"),
    (r"max_batch_size must be 0|max_batch_size == 0", "max_batch_size: 0"),
    (r"supports only Kind CPU|leave the kind out|runs on CPUs only", "kind: KIND_CPU"),
    (r"'penstock.host' must be", "leave the parameter out, or string_value: \"process\""),
    (r"is for instances in processes", "leave it out, or also penstock.host: process"),
    (r"needs dynamic_batching", "dynamic_batching {{ }}, or leave the parameter out"),
    (r"neither a directory nor an archive",
     "the path of a conda-pack archive, such as $$TRITON_MODEL_DIRECTORY/env.tar.gz"),
    (r"unknown Execution Accelerator", 'name: "openvino", "tensorrt" or "cuda"'),
    (r"\b(Syntax|Indentation)Error\b", "code that Python can read: see the line"),
    (r"needs as many|expects (the|one)",
     "the tensors that the backend has, as its page in docs/ shows them"),
    (r'Expected "(?P<what>[^"]*)"', "'{what}' there, or close what is open above"),
    (r"Expected identifier", "the name of a field there, or one closing brace less"),
    (r"must be (?P<what>[^,;']*)", "{what}"),
    (r"is not JSON", "JSON: double quotes, no comma behind the last entry"),
    (r"is (already )?(specified|given) (twice|more than once)|should not have multiple",
     "the field once"),
)  # fmt: skip
"""Patterns of refusals, the special ones first, and what to write; groups of theirs in braces."""

_NAME = re.compile(r"(?<!\w)'[^']*'(?!\w)|[^\s']*/[^\s']*")
"""Names in quotes and paths, which say nothing of what is wrong."""

_MEANT = re.compile(r"did you mean '([^']*)'")
_SAYS_IT = re.compile(
    r"; (?:write|set|convert|keep|install|there is|use|serve|make|"
    r"known are|export|run|save|forests|language models|backend|leave|its fields)"
    r"\b.*",
    re.DOTALL,
)
"""How refusals end that say themselves what to do."""

_MODEL_FILES = (".onnx", ".xml", ".pt", ".pt2", ".plan", ".py", ".json", ".ubj", ".txt", ".tl")
_MISSING = re.compile(r"([^\s']*/\S+?)'? (?:does not exist|for model instance)")
_STEP = re.compile(r"models that are not available or ambiguous: (.*)")


def advice(reason: str, model_path: Path | None) -> str:
    """The text to write, for the reason of a refusal; empty where the reason says it all."""
    if (known := _known_from_files(reason, model_path)) is not None:
        return known
    if meant := _MEANT.search(reason):
        return meant[1]
    if said := _SAYS_IT.search(reason):
        return said[0].removeprefix("; ")
    names = [each.span() for each in _NAME.finditer(reason)]
    for pattern, text in _TABLE:
        found = re.search(pattern, reason)
        if found and not any(first <= found.start() and found.end() <= end for first, end in names):
            groups = {name: value or "" for name, value in found.groupdict().items()}
            return text.format(**groups) if groups or "{{" in text else text
    return ""


def _known_from_files(reason: str, model_path: Path | None) -> str | None:
    """Advice from a look at the repository: that the model of a step is there, and cannot be read;
    or the file that lies where another is missing, as a line of the configuration.
    """
    if model_path is None:
        return None
    if (step := _STEP.search(reason)) and (model_path.parent / step[1]).is_dir():
        return f"mend '{step[1]}' first: see what is found there"
    if (found := _MISSING.search(reason)) is None:
        return None
    path = Path(found[1])
    if not path.parent.is_dir():
        return None
    files = [each.name for each in sorted(path.parent.iterdir()) if each.suffix in _MODEL_FILES]
    same = [name for name in files if Path(name).suffix == path.suffix]
    near = nearest_name(path.name, files)
    meant = near or (same[0] if len(same) == 1 else "")
    return (
        f'default_model_filename: "{meant}", or rename that file to {path.name}' if meant else None
    )
