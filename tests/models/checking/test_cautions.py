"""Warnings of the check: what loads, and is not what its operator wants."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

from models.checking.house import check, warnings, write_model
from models.checking.refused_rows import GENAI, GPU, IDENTITY, ONNX, VLLM, T, network, parameters
from models.sizing.headers.files import external, onnx, written
from penstock.models.checking.findings import Level

_MANY = parameters(penstock__max_queued_requests="4")
_BATCHES = "max_batch_size: 8\n"
_BATCHED = f"{IDENTITY}\n{_BATCHES}dynamic_batching {{\n"


async def test_a_batch_dimension_without_batching_is_told(tmp_path: Path) -> None:
    write_model(tmp_path, "m", f"{IDENTITY}\n{_BATCHES}")
    found = (await warnings(tmp_path))["no-dynamic-batching"]
    assert (found.place.line, found.fix) == (2, "dynamic_batching { }")


async def test_a_model_that_batches_or_does_not_is_no_caution(tmp_path: Path) -> None:
    write_model(tmp_path, "with", f"{_BATCHED} }}")
    write_model(tmp_path, "without", IDENTITY)
    write_model(tmp_path, "sequences", f"{IDENTITY} {_BATCHES} sequence_batching {{ }}")
    assert await warnings(tmp_path) == {}


async def test_sizes_that_a_short_queue_keeps_from_forming_are_told(tmp_path: Path) -> None:
    queue = "default_queue_policy { max_queue_size: 3 } }"
    write_model(tmp_path, "m", f"{_BATCHED}preferred_batch_size: [ 2, 4, 8 ]\n{queue}")
    found = (await warnings(tmp_path))["preferred-size-never-forms"]
    assert "preferred_batch_size 4, 8 never forms" in found.reason
    assert "[ 3 ]" in found.fix


async def test_queues_of_levels_hold_requests_together(tmp_path: Path) -> None:
    levels = "priority_levels: 2 default_priority_level: 1 preferred_batch_size: 6"
    queue = "default_queue_policy { max_queue_size: 3 }"
    write_model(tmp_path, "enough", f"{_BATCHED}{levels} {queue} }}")
    second = "priority_queue_policy { key: 2 value: { max_queue_size: 1 } } }"
    write_model(tmp_path, "short", f"{_BATCHED}{levels} {queue} {second}")
    found = (await warnings(tmp_path))["preferred-size-never-forms"]
    assert found.model == "short"


async def test_sizes_beyond_the_sequences_of_a_batch_are_told(tmp_path: Path) -> None:
    oldest = "oldest { max_candidate_sequences: 4 preferred_batch_size: [ 4, 8 ] }"
    write_model(tmp_path, "m", f"{IDENTITY} {_BATCHES} sequence_batching {{ {oldest} }}")
    found = (await warnings(tmp_path))["preferred-size-never-forms"]
    assert found.fix == "max_candidate_sequences: 8"


async def test_instances_beyond_the_cores_are_told(tmp_path: Path) -> None:
    write_model(tmp_path, "m", f"{IDENTITY}\ninstance_group [ {{ kind: KIND_CPU count: 9 }} ]")
    found = (await warnings(tmp_path, cores=4))["instances-beyond-cores"]
    assert found.place.line == 2
    assert "9 instances" in found.reason
    assert await warnings(tmp_path, cores=9) == {}


async def test_versions_that_nobody_can_reach_are_told(tmp_path: Path) -> None:
    for version in ("1", "2", "3"):
        write_model(tmp_path, "m", IDENTITY, version=version)
    found = (await warnings(tmp_path))["unreachable-version"]
    assert found.reason == "nobody can reach version 1, 2: version_policy selects 3"
    write_model(tmp_path, "m", f"{IDENTITY} version_policy {{ all {{ }} }}")
    assert await warnings(tmp_path) == {}


async def test_a_tensor_that_is_declared_twice_is_told(tmp_path: Path) -> None:
    write_model(tmp_path, "m", T.join(('backend: "identity"', T)))
    found = (await warnings(tmp_path))["repeated-tensor"]
    assert "declared 2 times" in found.reason


async def test_weights_beside_a_pinned_graph_that_are_not_pinned_are_told(tmp_path: Path) -> None:
    pin = 'parameters {{ key: "penstock.sha256:1/{}" value {{ string_value: "{}" }} }}\n'
    graph, data = onnx(external(1, [2], location="blob")), bytes(8)
    pinned = pin.format("model.onnx", sha256(graph).hexdigest())
    write_model(tmp_path, "m", f"{ONNX}\n{pinned}")
    written(tmp_path / "m/1/model.onnx", graph)
    written(tmp_path / "m/1/blob", data)
    found = (await warnings(tmp_path))["unpinned-weights"]
    assert "'1/model.onnx' is pinned, and '1/blob', where it has weights, is not" in found.reason
    assert 'key: "penstock.sha256:1/blob"' in found.fix
    whole = f"{ONNX}\n{pinned}{pin.format('blob', sha256(data).hexdigest())}"
    (tmp_path / "m/config.pbtxt").write_text(whole)
    assert "unpinned-weights" not in await warnings(tmp_path)


async def test_a_pointer_of_git_lfs_is_told(tmp_path: Path) -> None:
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 4\n"
    write_model(tmp_path, "m", ONNX, {"1/model.onnx": pointer})
    found = (await warnings(tmp_path))["git-lfs-pointer"]
    assert found.place.file == str(tmp_path / "m/1/model.onnx")
    assert "git lfs pull" in found.fix


async def test_an_engine_that_is_not_installed_is_told_with_the_line_of_pip(tmp_path: Path) -> None:
    write_model(tmp_path, "m", VLLM, {"1/model.json": '{"model": "facebook/opt-125m"}'})
    report = await check(tmp_path)
    (found,) = report.findings
    assert (found.rule, found.level) == ("engine-not-installed", Level.WARNING)
    assert found.fix == "pip install 'penstock[vllm]'"


async def test_a_lack_of_gpus_here_is_a_warning_and_the_rest_is_checked(tmp_path: Path) -> None:
    write_model(tmp_path, "m", f"{ONNX}\n{GPU}", {"1/model.onnx": network()})
    write_model(tmp_path, "other", f"{ONNX}\n{GPU}")
    write_model(tmp_path, "third", f"{ONNX}\n{GPU} {_MANY}", {"1/model.onnx": network()})
    report = await check(tmp_path)
    rules = {model.name: {found.rule for found in model.findings} for model in report.models}
    assert rules == {
        "m": {"gpu-not-here"},
        "other": {"refused-model", "gpu-not-here"},
        "third": {"refused-configuration", "gpu-not-here"},
    }
    assert not list((await check(tmp_path, "m", gpus=(0,))).findings)
    here = await check(tmp_path, "m", other_machine=False)
    assert [found.level for found in here.findings] == [Level.ERROR]


async def test_what_the_load_logs_as_a_warning_is_told(tmp_path: Path) -> None:
    write_model(tmp_path, "m", f"{IDENTITY}\noptimization {{ priority: PRIORITY_MAX }}")
    (tmp_path / "m" / "first").mkdir()
    report = await check(tmp_path)
    told = {found.reason: (found.rule, found.place.line) for found in report.findings}
    without = "model 'm': without effect with backend 'identity': optimization.priority"
    assert told[without] == ("load-warning", 2)
    assert any("ignore version directory 'first'" in reason for reason in told)


async def test_an_error_is_not_told_again_as_what_the_log_says(tmp_path: Path) -> None:
    write_model(tmp_path, "m", "nonsense")
    assert len(list((await check(tmp_path)).findings)) == 1


async def test_what_only_a_load_can_tell_is_named_and_no_error(tmp_path: Path) -> None:
    write_model(tmp_path, "m", 'backend: "onnxruntime"', {"1/model.onnx": network()})
    ensemble = (
        'platform: "ensemble" input { name: "X" data_type: TYPE_FP32 dims: 4 } output { name: "Y"'
        ' data_type: TYPE_FP32 dims: 4 } ensemble_scheduling { step { model_name: "m"'
        ' model_version: -1 input_map { key: "IN" value: "X" } output_map { key: "OUT" value: "Y"'
        " } } }"
    )
    write_model(tmp_path, "e", ensemble)
    e, m = (await check(tmp_path)).models
    assert m.loads
    assert e.loads
    assert "completes the configuration from the model" in m.unknown[0]
    assert "steps of m" in e.unknown[0]


async def test_what_a_model_may_complete_is_no_error_and_the_rest_is(tmp_path: Path) -> None:
    code = {"1/model.py": "class TritonPythonModel:\n    auto_complete_config = None\n"}
    python = 'backend: "python"'
    write_model(tmp_path, "completed", f'{python} input {{ name: "IN" }}', code)
    agents = 'model_repository_agents { agents { name: "another" } }'
    write_model(tmp_path, "refused", f"{python} {agents}", code)
    completed, refused = (await check(tmp_path)).models
    assert completed.loads
    assert not refused.loads


async def test_a_language_model_is_completed_by_a_look(tmp_path: Path) -> None:
    files = {"1/openvino_model.xml": "", "1/tokenizer.json": "{}"}
    write_model(tmp_path, "m", GENAI, files)
    (model,) = (await check(tmp_path)).models
    assert (model.loads, model.unknown, model.versions) == (True, (), (1,))


async def test_a_model_in_two_repositories_is_told(tmp_path: Path) -> None:
    write_model(tmp_path / "a", "m", IDENTITY)
    write_model(tmp_path / "b", "m", IDENTITY)
    (found,) = (await check([tmp_path / "a", tmp_path / "b"])).findings
    assert found.reason == "not unique across all model repositories"


async def test_a_name_without_a_model_is_told(tmp_path: Path) -> None:
    write_model(tmp_path, "m", IDENTITY)
    (found,) = (await check(tmp_path, "n")).findings
    assert found.reason == "model not found in any model repository."


async def test_the_models_that_a_named_one_needs_are_checked_too(tmp_path: Path) -> None:
    from models.checking.refused_ensembles import ROWS

    row = ROWS["types"]
    for name, config in {"e": row.config, **row.others, "aside": "nonsense"}.items():
        write_model(tmp_path, name, config)
    report = await check(tmp_path, "e")
    assert [model.name for model in report.models] == ["e", "one", "two"]
