"""The command `penstock plan`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from models.sizing.headers.files import onnx, safetensors, tensor
from penstock import cli

Printed = pytest.CaptureFixture[str]

_CONFIG = 'backend: "{backend}" {more}'


def _write(folder: Path, name: str, backend: str, more: str = "") -> Path:
    version = folder / name / "1"
    version.mkdir(parents=True)
    (version.parent / "config.pbtxt").write_text(_CONFIG.format(backend=backend, more=more))
    return version


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A network of 4 MiB with two instances, one in Python, and an ensemble of both."""
    network = _write(tmp_path, "net", "onnxruntime")
    (network / "model.onnx").write_bytes(onnx(tensor(1, [1 << 20], raw=bytes(4 << 20))))
    (_write(tmp_path, "code", "python") / "model.py").write_text("")
    steps = "".join(
        f'step {{ model_name: "{name}" input_map {{ key: "X" value: "X" }}'
        f' output_map {{ key: "Y" value: "of_{name}" }} }}'
        for name in ("net", "code")
    )
    ensemble = tmp_path / "both" / "1"
    ensemble.mkdir(parents=True)
    (ensemble.parent / "config.pbtxt").write_text(
        'input { name: "X" data_type: TYPE_FP32 dims: 1 }'
        ' output { name: "of_net" data_type: TYPE_FP32 dims: 1 }'
        ' output { name: "of_code" data_type: TYPE_FP32 dims: 1 }'
        f' platform: "ensemble" ensemble_scheduling {{ {steps} }}'
    )
    return tmp_path


def _json(printed: Printed, *arguments: object) -> tuple[int, Any]:
    status = cli.main(["plan", *map(str, arguments), "--format=json"])
    return status, json.loads(printed.readouterr().out)


def test_parts_of_all_models_are_shown_with_their_sum(repository: Path, capsys: Printed) -> None:
    status, plan = _json(capsys, repository)
    assert status == 0
    models = {model["name"]: model for model in plan["models"]}
    assert list(models) == ["both", "code", "net"]
    assert models["net"]["devices"]["host"]["weights"] == {"FP32": int((4 << 20) * 1.08)}
    assert models["net"]["instances"] == 2
    parts = [part for model in plan["models"] for part in model["devices"].values()]
    needed = sum(part["sum"] for part in parts) + plan["server"]["host"]["sum"]
    assert plan["devices"]["host"]["needed"] == needed
    assert plan["devices"]["host"]["planned"] == pytest.approx(needed * 1.15, abs=9)


def test_the_folder_of_a_model_is_planned_with_what_it_needs(
    repository: Path, capsys: Printed
) -> None:
    for folder, names in (("net", ["net"]), ("both", ["both", "code", "net"])):
        status, plan = _json(capsys, repository / folder)
        assert (status, [model["name"] for model in plan["models"]]) == (0, names)


def test_the_text_has_a_row_for_each_model_and_says_what_fits(
    repository: Path, capsys: Printed
) -> None:
    assert cli.main(["plan", str(repository), "--memory=4GiB"]) == 0
    text = capsys.readouterr().out
    assert "net:1     host    2          4.32 MiB FP32" in text
    assert "fits the memory of the host, of which programs may use 4.00 GiB" in text
    assert "cards: v100, t4" in text


def test_what_does_not_fit_is_said_with_what_would(repository: Path, capsys: Printed) -> None:
    assert cli.main(["plan", str(repository), "--memory=100MiB"]) == 1
    text = capsys.readouterr().out
    assert "does not fit the memory of the host" in text
    assert "too much" in text
    assert "1 instead of 2 instances" in text
    assert "weights in FP16" not in text  # computed in FP32 on a CPU, and kept in both
    assert cli.main(["plan", "--also=llama=14B:fp16", "--device=l4"]) == 1
    assert "weights in FP8 instead of FP16" in capsys.readouterr().out


def test_named_models_come_with_those_that_they_need(repository: Path, capsys: Printed) -> None:
    _, plan = _json(capsys, repository, "both")
    assert sorted(model["name"] for model in plan["models"]) == ["both", "code", "net"]
    _, plan = _json(capsys, repository, "net")
    assert [model["name"] for model in plan["models"]] == ["net"]


def test_on_gpus_models_are_counted_on_each(repository: Path, capsys: Printed) -> None:
    status, plan = _json(capsys, repository, "net", "--device=l4:2")
    assert status == 0
    (model,) = plan["models"]
    assert [*model["devices"]] == ["gpu0", "host", "gpu1"]
    assert plan["cards"]["l4"] == 1


def test_models_that_are_not_there_are_counted_by_their_size(capsys: Printed) -> None:
    """The example of S118, which fits."""
    models = ["--also=bert=1GB", "--also=clip=600MB", "--also=llama=8B:fp8"]
    status, plan = _json(capsys, *models, "--device=l40s")
    assert status == 0
    assert plan["devices"]["gpu0"]["planned"] == 11_040_000_000
    assert cli.main(["plan", "--also=big=70B:fp8", "--device=l40s"]) == 1
    text = capsys.readouterr().out
    assert "'big' has more than 40 GB, and wants a card of 80 GB" in text
    assert "2 cards, with language models split over them" in text


def test_length_and_concurrency_can_be_asked_for(tmp_path: Path, capsys: Printed) -> None:
    group = "instance_group { kind: KIND_MODEL count: 1 }"
    version = _write(tmp_path, "llm", "vllm", group)
    (version / "m").mkdir()
    layers = {"num_hidden_layers": 2, "num_attention_heads": 2, "hidden_size": 8}
    (version / "m" / "config.json").write_text(json.dumps(layers))
    (version / "m" / "m.safetensors").write_bytes(safetensors({"a": ("BF16", [4], 8)}))
    (version / "model.json").write_text('{"model": "m", "max_model_len": 7}')
    _, plan = _json(capsys, tmp_path, "--device=t4")
    token = 2 * 2 * 8 * 2
    assert plan["models"][0]["devices"]["gpu0"]["kv_cache"] == 7 * token
    assert "room for one sequence of 7 tokens" in plan["models"][0]["notes"][0]
    _, plan = _json(capsys, tmp_path, "--device=t4", "--length=100", "--concurrency=3")
    assert plan["models"][0]["devices"]["gpu0"]["kv_cache"] == 300 * token


@pytest.mark.parametrize(
    ("group", "place"),
    [
        ("kind: KIND_GPU", "--memory=64GiB"),
        ("kind: KIND_GPU gpus: [ 3 ]", "--device=h100:2"),
        ("kind: KIND_GPU gpus: [ 0, 3 ]", "--device=h100:2"),
    ],
)
def test_instances_on_gpus_that_are_not_there_do_not_fit(
    tmp_path: Path, capsys: Printed, group: str, place: str
) -> None:
    version = _write(tmp_path, "net", "onnxruntime", f"instance_group {{ count: 1 {group} }}")
    (version / "model.onnx").write_bytes(onnx(tensor(1, [4], raw=bytes(16))))
    assert cli.main(["plan", str(tmp_path), place]) == 1
    text = capsys.readouterr().out
    assert "'net' has instances on GPUs that are not there" in text
    assert cli.main(["plan", str(tmp_path)]) == 0
    assert "note: 'net': it has instances on GPUs that are not there" in capsys.readouterr().out
    assert cli.main(["plan", str(tmp_path), "--device=h100:4"]) == 0


def test_a_model_by_the_name_of_a_hub_takes_its_share_of_the_card(
    tmp_path: Path, capsys: Printed
) -> None:
    group = "instance_group { kind: KIND_MODEL count: 1 }"
    version = _write(tmp_path, "llm", "vllm", group)
    settings = {"model": "org/name", "gpu_memory_utilization": 0.5}
    (version / "model.json").write_text(json.dumps(settings))
    status, plan = _json(capsys, tmp_path, "--device=h100", "--also=other=48B:fp8")
    parts = plan["models"][0]["devices"]["gpu0"]
    assert status == 1
    assert parts["planned"] == parts["reserved"] == plan["limit"] // 2
    assert "what its engine takes of the card is counted" in plan["models"][0]["notes"][1]
    assert not any("gpu_memory_utilization" in each["change"] for each in plan["changes"])


def test_a_model_that_cannot_be_read_is_named_beside_the_others(
    repository: Path, capsys: Printed
) -> None:
    (repository / "net" / "1" / "model.onnx").write_bytes(b"\xff" * 9)
    assert cli.main(["plan", str(repository)]) == 2
    text = capsys.readouterr().out
    assert "cannot be read: 'net': " in text
    assert "code:1" in text


def test_what_the_system_refuses_is_said_of_the_one_model(
    repository: Path, capsys: Printed
) -> None:
    version = _write(repository, "llm", "vllm")
    (version / "model.json").write_text(json.dumps({"model": "a" * 300}))
    assert cli.main(["plan", str(repository)]) == 2
    text = capsys.readouterr().out
    assert "cannot be read: 'llm': [Errno 36] File name too long" in text
    assert "code:1" in text


def test_names_from_files_do_nothing_to_a_terminal(tmp_path: Path, capsys: Printed) -> None:
    version = _write(tmp_path, "net", "onnxruntime")
    dtype = "\x1b[2J\n"
    (version / "m.safetensors").write_bytes(safetensors({"a": (dtype, [4], 8)}))
    (tmp_path / "\x1b[31mred" / "1").mkdir(parents=True)
    cli.main(["plan", str(tmp_path)])
    printed = capsys.readouterr().out
    assert "\x1b" not in printed
    assert "8 B \\x1b[2J" in printed
    assert "'\\x1b[31mred'" in printed


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "name a repository, or models with --also"),
        (["r", "--device=h10"], "did you mean 'h100'"),
        (["r", "--device=h100:many"], "--device is CARD or CARD:NUMBER"),
        (["r", "--memory=much"], "'much' is no size"),
        (["r", "--device=t4", "--memory=1GiB"], "not allowed with argument"),
        (["--also=big=70B"], "'big=70B' is not like NAME=600MB or NAME=70B:fp8"),
        (["--also=m=7B:q4_k"], "'q4_k' is no data type that is known"),
        (["r", "--length=0"], "'0' is no number above 0"),
        (["no such folder"], "failed to stat file no such folder"),
    ],
)
def test_mistakes_are_one_line(arguments: list[str], said: str, capsys: Printed) -> None:
    try:
        status: Any = cli.main(["plan", *arguments])
    except SystemExit as ended:
        status = ended.code
    assert status == 2
    assert said in capsys.readouterr().err


def test_a_model_that_is_not_there_is_said(repository: Path, capsys: Printed) -> None:
    assert cli.main(["plan", str(repository), "gone"]) == 2
    assert "cannot be read: 'gone': " in capsys.readouterr().out


def test_models_may_stand_behind_options(repository: Path, capsys: Printed) -> None:
    _, plan = _json(capsys, repository, "--memory=1GiB", "net", "--length=8")
    assert [model["name"] for model in plan["models"]] == ["net"]


def test_a_model_that_is_not_there_has_its_reason_in_the_plan_alone(
    repository: Path, capsys: Printed, caplog: pytest.LogCaptureFixture
) -> None:
    status, plan = _json(capsys, repository, "none")
    assert status == 2
    assert plan["problems"] == {"none": "model not found in any model repository."}
    assert not caplog.records
