"""Every refusal of a load: found by the check in the load's words, or it needs the model to run.

`refused_rows.ROWS` and the configurations that Triton refuses are checked; what refuses in the code
is found by reading it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from models.checking import refused_ensembles, refused_language_models, refused_rows
from models.checking.house import errors, told_by_load, write_model
from models.checking.refusal_sites import Site, lines_reached, sites
from models.checking.refused_rows import Row

_WRONG = json.loads(
    (Path(__file__).parents[1] / "loading" / "wrong_configs.json").read_text("utf-8")
)
_PARTS = {
    name: f'backend: "identity" {rows} input [ {{ name: "INPUT0" data_type: TYPE_FP32 dims: 4'
    ' } ] output [ { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ 4 ] } ]'
    for name, rows in (("ok", ""), ("ok4", "max_batch_size: 4"))
}
_TRITONS: Mapping[str, Row] = {
    name: Row(row["config"].replace('backend: "python"', 'backend: "identity"'), others=_PARTS)
    for name, row in _WRONG.items()
}

ROWS = {**refused_rows.ROWS, **refused_language_models.ROWS, **refused_ensembles.ROWS}

NEED_MORE: Mapping[str, str] = {
    # -- what only a load request brings
    "penstock/models/config/pbtxt.py parse_override": "a load request brings it",
    "penstock/models/config/validation/foreign_code.py *": "a load request brings it",
    "penstock/models/repository/override.py *": "a load request brings it",
    "penstock/models/repository/repository.py _read_files": "a load request brings it",
    "penstock/core/config/*": "protobuf's parser refuses it first, where it is no JSON",
    "penstock/models/config/pbtxt.py parse_pbtxt": "protobuf's parser refuses it first",
    # -- what defaults, or the rules of a file, have seen to before
    "penstock/models/config/validation/model.py backend_problems": "name and policy are filled in",
    "penstock/models/config/validation/model.py instance_problems": "groups are filled in",
    "penstock/models/config/validation/model.py _group_problems": "kinds are filled in",
    "penstock_backends/openai_kit/settings.py *": "the file's own rule refuses it first",
    # -- what depends on the machine, or on flags of the server beside those of models
    "penstock/models/config/pbtxt.py read_pbtxt": "a disk that fails",
    "penstock/core/placement.py Placement.*": "host policies of the server's flags",
    "penstock/core/placement.py _*": "host policies of the server's flags",
    "penstock/scheduling/rate_limiter.py *": "resources of the server's flags",
    "penstock/models/loading/instance_factory.py InstanceFactory._process": "other models' cores",
    "penstock/models/loading/instance_factory.py hosting": "another Python, of the server's flags",
    "penstock/models/loading/build_version.py check_gpu_memory": "limits of the server's flags, and"
    " what else uses the GPU",
    "penstock/models/remote/*": "the store is asked",
    "penstock/models/sizing/budget.py *": "a budget of the server's flags, and what else is loaded",
    "penstock/models/sizing/[!b]*": "read only where the server's flags set a budget",
    # -- what runs the model, or its engine
    "penstock/models/loading/warmup.py *": "the sample is executed",
    "penstock_backends/fil/forest.py *": "treelite reads the file",
    "penstock_backends/language_model/visible_gpu.py *": "the process sees its GPUs",
    "penstock_backends/onnxruntime/graph.py *": "ONNX Runtime reads the graph",
    "penstock_backends/onnxruntime/session.py *": "ONNX Runtime opens the graph",
    "penstock_backends/onnxruntime/providers.py providers": "the installed build is asked",
    "penstock_backends/onnxruntime/providers.py _cuda": "the installed build is asked",
    "penstock_backends/openai_kit/packages.py *": "packages are imported",
    "penstock_backends/openai_kit/text_models/*": "a tokenizer is opened",
    "penstock_backends/openvino/backend.py [!O]*": "OpenVINO reads the graph",
    "penstock_backends/openvino/model_graph.py *": "OpenVINO reads the graph",
    "penstock_backends/openvino_genai/backend.py *": "the engine starts",
    "penstock_backends/openvino_genai/engine.py *": "requests of an engine that has failed",
    "penstock_backends/openvino_genai/pipeline.py *": "the engine starts",
    "penstock_backends/python/environment/*": "the environment is made, or its Python run",
    "penstock_backends/python/process/*": "the model's code is run",
    "penstock_backends/pytorch/backend.py PyTorchBackend.read": "nobody calls it",
    "penstock_backends/pytorch/graph.py *": "PyTorch reads the program",
    "penstock_backends/pytorch/program.py *": "PyTorch reads the program",
    "penstock_backends/remote/[!s]*": "the other server is asked",
    "penstock_backends/remote/settings.py *": "read as by the load, tested there",
    "penstock_backends/tensor_models/autocomplete.py *": "the engine reads the graph",
    "penstock_backends/tensor_models/check.py *": "the engine reads the graph",
    "penstock_backends/tensor_models/image_reader.py *": "Pillow is imported",
    "penstock_backends/tensor_models/text_model.py _check_inputs": "the engine reads the graph",
    "penstock_backends/tensor_models/tokenizer.py _open": "the tokenizer is opened",
    "penstock_backends/tensorflow/graph.py *": "TensorFlow reads the graph",
    "penstock_backends/tensorflow/on_openvino.py _advised": "OpenVINO reads the graph",
    "penstock_backends/tensorflow/backend.py *": "of signatures: read as by the load, tested there",
    "penstock_backends/tensorflow/saved_model.py *": "of signatures: read as by the load, tested"
    " there",
    "penstock_backends/tensorrt/backend.py *": "TensorRT reads the plan",
    "penstock/models/repository/integrity.py SignatureKey.*": "keys of the server's flags",
    "penstock/models/repository/integrity.py _refuse_linked_folders": "keys of the server's flags",
    "penstock_backends/tensorrt/cuda.py *": "CUDA is asked",
    "penstock_backends/tensorrt/execution.py *": "the plan is executed",
    "penstock_backends/tensorrt/plan.py *": "TensorRT reads the plan",
    "penstock_backends/tensorrt_llm/backend.py *.initialize": "the engine starts",
    "penstock_backends/tensorrt_llm/engine.py *": "the engine starts",
    "penstock_backends/tensorrt_llm/environment.py *": "the process sees its GPUs",
    "penstock_backends/tensorrt_llm/logits_processors.py *": "processors are imported",
    "penstock_backends/tensorrt_llm/model_face.py *": "read as by the load, tested there",
    "penstock_backends/tensorrt_llm/openai_app.py *": "the engine's own application is made",
    "penstock_backends/tensorrt_llm/settings.py _yaml": "a package is imported",
    "penstock_backends/vllm/arguments/engine_keywords.py *": "vLLM knows its arguments",
    "penstock_backends/vllm/backend.py *": "the engine starts",
    "penstock_backends/vllm/control.py *": "a command of an operator",
    "penstock_backends/vllm/engine.py *": "the engine starts",
    "penstock_backends/vllm/engine_calls.py *": "requests of an engine that is asleep",
    "penstock_backends/vllm/internals.py *": "the engine starts",
    "penstock_backends/vllm/openai/*": "the engine's own application is made",
}
"""File and function of refusals that the check cannot know of, by patterns, and why."""


def test_the_page_says_why_the_check_does_not_know_some() -> None:
    page = (Path(__file__).parents[3] / "docs" / "check.md").read_text()
    rows = page.partition("| why the check does not know it |\n|---|---|\n")[2].split("\n\n")[0]
    reasons = [row.split("|")[2].strip() for row in rows.splitlines()]
    assert len(reasons) == 5
    assert {reason for reason in reasons if "--gpus=0" not in reason} <= {*NEED_MORE.values()}


def _write(root: Path, row: Row, name: str) -> None:
    write_model(root, name, row.config, row.files)
    for other, config in row.others.items():
        if other != name:
            write_model(root, other, config)


@pytest.fixture(scope="module")
def reached() -> set[tuple[str, int]]:
    """File and line of what the checks of this module ran."""
    return set()


async def _found(root: Path, row: Row, name: str, reached: set[tuple[str, int]]) -> list[str]:
    _write(root, row, name)
    with lines_reached() as lines:
        found = await errors(root, name, settings=row.settings, gpus=row.gpus)
    reached |= lines
    assert all(finding.fix for finding in found)
    return [finding.reason for finding in found if finding.model == name]


@pytest.mark.slow
@pytest.mark.parametrize("name", ROWS)
async def test_a_refusal_is_found_in_the_words_of_the_load(
    tmp_path: Path, reached: set[tuple[str, int]], name: str
) -> None:
    row = ROWS[name]
    reasons = await _found(tmp_path, row, row.name, reached)
    assert reasons
    told = await told_by_load(tmp_path, row.name, row.settings, row.gpus)
    assert told
    if not row.elsewhere:
        assert any(reason in told for reason in reasons), told


@pytest.mark.parametrize("name", _TRITONS)
async def test_what_triton_refuses_is_found_in_the_words_of_the_load(
    tmp_path: Path, reached: set[tuple[str, int]], name: str
) -> None:
    row = _TRITONS[name]
    reasons = await _found(tmp_path, row, name, reached)
    told = await told_by_load(tmp_path, name)
    assert any(reason in told for reason in reasons), told


@pytest.mark.slow
@pytest.mark.last
def test_every_refusal_is_found_or_needs_the_model_to_run(reached: set[tuple[str, int]]) -> None:
    missed = [
        str(site) for site in sites() if not _is_reached(site, reached) and not _needs_more(site)
    ]
    assert not missed, "\n".join(missed)


@pytest.mark.slow
@pytest.mark.last
def test_each_reason_is_one_of_a_refusal_that_is_not_found(reached: set[tuple[str, int]]) -> None:
    open_places = {_place(site) for site in sites() if not _is_reached(site, reached)}
    unused = [p for p in NEED_MORE if not any(fnmatchcase(place, p) for place in open_places)]
    assert not unused


def _place(site: Site) -> str:
    return f"{site.file} {site.function}"


def _is_reached(site: Site, reached: set[tuple[str, int]]) -> bool:
    return any((site.file, line) in reached for line in site.lines)


def _needs_more(site: Site) -> bool:
    return any(fnmatchcase(_place(site), pattern) for pattern in NEED_MORE)
