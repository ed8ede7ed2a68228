"""Advice: what to write in place of what a load refuses, by the text of its refusal."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from penstock.core.nearest_name import nearest_name

_TABLE: Sequence[tuple[str, str]] = (
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
    (r"cut short|not an ONNX file", "the whole file: what lies there is not one, or a part of one"),
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
_MISSING = re.compile(r"(/\S+?)'? (?:does not exist|for model instance)")


def advice(reason: str, model_path: Path | None) -> str:
    """The text to write, for the reason of a refusal; empty where the reason says it all."""
    if (renamed := _file_that_was_meant(reason, model_path)) is not None:
        return renamed
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


def _file_that_was_meant(reason: str, model_path: Path | None) -> str | None:
    """The name of a file that lies where another is missing, as a line of the configuration."""
    found = _MISSING.search(reason)
    if found is None or model_path is None:
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
