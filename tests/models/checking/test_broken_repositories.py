"""Thirty broken repositories: the check tells file, line, reason and fix, and the load the same."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from models.checking.broken import BROKEN, Broken
from models.checking.house import check, errors, told_by_load, write_model
from models.checking.refused_language_models import checkpoint, index
from models.checking.refused_rows import IDENTITY, ROWS, VLLM
from models.sizing.headers.files import safetensors


def _write(root: Path, broken: Broken) -> None:
    write_model(root, "m", broken.config, broken.files, broken.version)
    for name, config in broken.others.items():
        write_model(root, name, config)


def test_there_are_thirty() -> None:
    assert len(BROKEN) == 30


@pytest.mark.contract("C-01", "C-02", "C-03", "C-08", "C-10", "C-39", "R-13", "R-24")
@pytest.mark.parametrize("name", BROKEN)
async def test_file_line_reason_and_fix_are_told(tmp_path: Path, name: str) -> None:
    broken = BROKEN[name]
    _write(tmp_path, broken)
    found, *others = await errors(tmp_path, "m")
    assert f"{Path(found.place.file).name}:{found.place.line}" == broken.place
    assert Path(found.place.file).is_relative_to(tmp_path / "m")
    assert broken.reason in found.reason
    assert broken.fix in found.fix
    assert others == []


@pytest.mark.parametrize("name", ["metrics", "SyntaxErrors", "m"])
async def test_a_fix_does_not_hang_on_the_name_of_the_model(tmp_path: Path, name: str) -> None:
    config = f"{IDENTITY} instance_group [ {{ kind: KIND_CPU gpus: [ 0 ] }} ]"
    write_model(tmp_path / "metrics", name, config)
    (found,) = await errors(tmp_path / "metrics", name)
    assert found.fix == "kind: KIND_GPU, or no gpus"
    write_model(tmp_path / "metrics", name, IDENTITY.replace('"OUT"', '"OUT" label_filename: "l"'))
    (found,) = await errors(tmp_path / "metrics", name)
    assert found.fix.startswith("the file 'l'")


@pytest.mark.parametrize(
    ("row", "fix"),
    [
        ("a file that is cut short", "the whole file"),
        ("weights that are not beside the graph", "the whole file 'blob' beside the graph"),
        ("weights that are cut short", "the whole file 'blob' beside the graph"),
        ("weights outside of the model", "a graph whose weights lie in its own folder"),
        ("a datatype of another graph", "data_type: TYPE_INT64"),
        ("dimensions of another graph", "dims: [ -1,5 ]"),
        ("inputs of another graph", "one of these names: X"),
        ("fewer inputs than the graph", "an input for each of these: MORE"),
        ("outputs of another graph", "one of these names: Y"),
        ("batches of a graph of one row", "max_batch_size: 0"),
        ("a pickle", "save it with torch.jit.save"),
    ],
)
async def test_what_a_file_says_is_how_the_configuration_is_mended(
    tmp_path: Path, row: str, fix: str
) -> None:
    write_model(tmp_path, "m", ROWS[row].config, ROWS[row].files)
    (found,) = await errors(tmp_path, "m")
    assert found.fix.startswith(fix)


async def test_each_damaged_file_of_weights_is_told_and_no_other(tmp_path: Path) -> None:
    whole = safetensors({"a": ("F32", [2], 8)})
    files = {"a.safetensors": whole[:9], "b.safetensors": whole, "c.safetensors": whole[:-1]}
    row = checkpoint({**files, "unread.safetensors": b"", **index(*files)})
    write_model(tmp_path, "m", row.config, row.files)
    places = [Path(found.place.file).name for found in await errors(tmp_path)]
    assert places == ["a.safetensors", "c.safetensors"]


async def test_a_header_longer_than_is_read_is_no_error(tmp_path: Path) -> None:
    row = checkpoint({"a.safetensors": (1 << 26).to_bytes(8, "little")})
    write_model(tmp_path, "m", row.config, row.files)
    os.truncate(tmp_path / "m/1/weights/a.safetensors", 1 << 27)
    assert await errors(tmp_path) == []


async def test_a_file_that_is_meant_is_found_below_a_relative_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_model(tmp_path / "models", "m", 'backend: "onnxruntime"', {"1/modle.onnx": b"x"})
    monkeypatch.chdir(tmp_path)
    (found,) = await errors(Path("models"))
    assert found.fix.startswith('default_model_filename: "modle.onnx"')


async def test_a_step_that_is_there_and_broken_is_to_be_mended_first(tmp_path: Path) -> None:
    broken = BROKEN["instances of an ensemble"]
    write_model(tmp_path, "m", broken.config.replace("instance_group [ { count: 2 } ]", ""))
    write_model(tmp_path, "one", 'platform: "custom"')
    fixes = [found.fix for found in await errors(tmp_path, "m")]
    assert "mend 'one' first: see what is found there" in fixes


async def test_a_lack_of_gpus_does_not_hide_a_lack_of_versions(tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    config = 'backend: "python" instance_group [ { kind: KIND_GPU } ]'
    (tmp_path / "m" / "config.pbtxt").write_text(config)
    (found,) = (await check(tmp_path)).findings
    assert found.reason.startswith("at least one version must be available")


async def test_large_files_are_not_searched(tmp_path: Path) -> None:
    wrong = json.dumps({"model": "x", "openai": 3})
    for name, more in (("small", ""), ("large", "\n" * (1 << 20))):
        write_model(tmp_path, name, VLLM, {"1/model.json": f"\n{wrong}{more}"})
    places = [found.place for found in await errors(tmp_path)]
    assert [place.line for place in places] == [1, 2]


@pytest.mark.slow
@pytest.mark.parametrize("name", BROKEN)
async def test_the_load_tells_the_same_reason(tmp_path: Path, name: str) -> None:
    _write(tmp_path, BROKEN[name])
    (found,) = await errors(tmp_path, "m")
    assert found.reason in await told_by_load(tmp_path, "m")


async def test_all_of_them_are_checked_at_once(tmp_path: Path) -> None:
    for number, broken in enumerate(BROKEN.values()):
        if not broken.others:
            write_model(tmp_path, f"m{number}", broken.config, broken.files, broken.version)
    write_model(tmp_path, "fine", BROKEN["no dims"].config.replace("FP32 ", "FP32 dims: 4", 1))
    report = await check(tmp_path)
    assert [model.name for model in report.models if model.loads] == ["fine"]
