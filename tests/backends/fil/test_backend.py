"""Forests: formats, rules of answers, parameters, completion, bad files."""

from __future__ import annotations

import base64
import pickle
import re
import shutil
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from backends.fil import forests
from backends.tensor_models import graphs
from penstock.core.config import InstanceGroup, InstanceKind, ModelConfig
from penstock.core.errors import (
    BackendNotInstalledError,
    ConfigError,
    ModelLoadError,
)
from penstock.core.tensor import DataType
from penstock.testing import running
from penstock_backends.fil import FilBackend
from penstock_backends.fil.settings import COMPILE, FILES, FilSettings

Open = Callable[..., Awaitable[FilBackend]]


async def _answer(backend: FilBackend, rows: Any, name: str = "output__0") -> Any:
    (outcome,) = await backend.execute([graphs.request(input__0=rows)])
    return graphs.tensor(outcome, name).numpy()


def test_importing_it_imports_no_engine() -> None:
    code = "import sys, penstock_backends.fil; sys.exit('treelite' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# -- formats, against the frameworks ---------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.contract("B-16", "R-23")
@pytest.mark.parametrize("kind", forests.KINDS)
async def test_lightgbm_gives_its_own_answers(
    open_backend: Open, version: Path, rows: Any, kind: str
) -> None:
    made = forests.lightgbm(rows, kind, version / "model.txt")
    classifier = "false" if kind == "regression" else "true"
    width = 3 if kind == "multiclass" else 1
    given: dict[str, Any] = {
        "model_type": "lightgbm",
        "is_classifier": classifier,
        "predict_proba": classifier,
    }
    answer = await _answer(await open_backend(forests.config(width, **given)), rows)
    assert answer.dtype == np.float32
    assert_allclose(answer, made.predict(rows).reshape(len(rows), width), atol=1e-6)


@pytest.mark.slow
@pytest.mark.contract("B-16", "R-23")
@pytest.mark.parametrize("kind", forests.KINDS)
@pytest.mark.parametrize(
    ("model_type", "name"), [("xgboost_json", "xgboost.json"), ("xgboost_ubj", "xgboost.ubj")]
)
async def test_xgboost_gives_its_own_answers(
    open_backend: Open, version: Path, rows: Any, kind: str, model_type: str, name: str
) -> None:
    predict = forests.xgboost(rows, kind, version / name)
    classifier = "false" if kind == "regression" else "true"
    width = 3 if kind == "multiclass" else 1
    given: dict[str, Any] = {
        "model_type": model_type,
        "is_classifier": classifier,
        "predict_proba": classifier,
    }
    answer = await _answer(await open_backend(forests.config(width, **given)), rows)
    assert_allclose(answer, predict(rows).reshape(len(rows), width), atol=1e-6)


# Two stumps that XGBoost 2.1.4 learnt of one feature, in the format that 3.1 has given up.
_LEGACY = (
    "c-l+K%u8cnV6bOmfB;4)%>-q``1An$P&z3yFR`f7DkncZv$!NPnGGtOo>Wqln#x3HN0ACZZevE`4+i)C2LeW@TR@=h"
    "t%og;YWNQYATi6n$NOPwk;LpR`;wi2N*zJ!k&JYNsYl}54`u(qd6tLa|5wlQ?C)uCIR<+EbqLv!x&>xlh-a+>Og#wr"
    "0r?=c=;;6iIH7cYQdVkmNoHB93sj(5DK9ZMRmn;TEx9Y{C>5oq$LHi17snSQ7A58?Syd|)Cnx5l#uwxl$CsyOre~A@w"
    "HYea)&c;3ZE~s"
)


@pytest.mark.contract("B-16", "R-23")
async def test_the_format_that_xgboost_had_before_gives_its_answers(
    open_backend: Open, version: Path
) -> None:
    (version / "xgboost.model").write_bytes(zlib.decompress(base64.b85decode(_LEGACY)))
    config = forests.config(1, 2, is_classifier="true", predict_proba="true")
    answer = await _answer(
        await open_backend(config), np.array([[-1, 0], [1, 0], [0.2, 3]], np.float32)
    )
    assert_allclose(answer[:, 0], [0.0623280, 0.9376719, 0.9376719], atol=1e-6)


@pytest.mark.contract("B-16", "R-23")
async def test_a_checkpoint_gives_the_answers_of_what_it_was_made_of(
    open_backend: Open, version: Path, rows: Any, tmp_path: Path
) -> None:
    import treelite

    made = forests.lightgbm(rows, "binary", tmp_path / "model.txt")
    trees = treelite.frontend.load_lightgbm_model(tmp_path / "model.txt")
    trees.serialize(version / "checkpoint.tl")
    given: dict[str, Any] = {
        "model_type": "treelite_checkpoint",
        "is_classifier": "1",
        "predict_proba": "1",
    }
    answer = await _answer(await open_backend(forests.config(**given)), rows)
    assert_allclose(answer[:, 0], made.predict(rows), atol=1e-6)


# -- rules of answers ------------------------------------------------------------------------------


@pytest.mark.contract("B-16")
@pytest.mark.parametrize("threshold", ["0.5", "0.9"])
async def test_a_class_is_told_by_the_threshold(
    open_backend: Open, version: Path, rows: Any, threshold: str
) -> None:
    made = forests.lightgbm(rows, "binary", version / "model.txt")
    given: dict[str, Any] = {
        "model_type": "lightgbm",
        "is_classifier": "true",
        "threshold": threshold,
    }
    answer = await _answer(await open_backend(forests.config(**given)), rows)
    assert_array_equal(answer[:, 0], (made.predict(rows) > float(threshold)).astype(np.float32))


@pytest.mark.contract("B-16")
async def test_both_probabilities_are_told_where_two_are_declared(
    open_backend: Open, version: Path, rows: Any
) -> None:
    made = forests.lightgbm(rows, "binary", version / "model.txt")
    given: dict[str, Any] = {
        "model_type": "lightgbm",
        "is_classifier": "true",
        "predict_proba": "true",
    }
    answer = await _answer(await open_backend(forests.config(2, **given)), rows)
    ones = made.predict(rows)
    assert_allclose(answer, np.stack([1 - ones, ones], axis=1), atol=1e-6)


@pytest.mark.contract("B-16")
async def test_of_several_classes_the_most_likely_is_told(
    open_backend: Open, version: Path, rows: Any
) -> None:
    made = forests.lightgbm(rows, "multiclass", version / "model.txt")
    given: dict[str, Any] = {"model_type": "lightgbm", "is_classifier": "true"}
    answer = await _answer(await open_backend(forests.config(**given)), rows)
    assert_array_equal(answer[:, 0], made.predict(rows).argmax(axis=1).astype(np.float32))


async def test_requests_of_a_batch_get_their_own_rows(
    open_backend: Open, version: Path, rows: Any
) -> None:
    forests.lightgbm(rows, "regression", version / "model.txt")
    given: dict[str, Any] = {"model_type": "lightgbm", "is_classifier": "false"}
    backend = await open_backend(forests.config(**given))
    whole = await _answer(backend, rows[:7])
    parts = [graphs.request(input__0=part) for part in (rows[:2], rows[2:7])]
    first, second = await backend.execute(parts)
    assert_array_equal(graphs.tensor(first, "output__0").numpy(), whole[:2])
    assert_array_equal(graphs.tensor(second, "output__0").numpy(), whole[2:])


async def test_no_rows_are_answered_with_none(open_backend: Open, version: Path, rows: Any) -> None:
    forests.lightgbm(rows, "regression", version / "model.txt")
    given: dict[str, Any] = {"model_type": "lightgbm", "is_classifier": "false"}
    backend = await open_backend(forests.config(**given))
    assert (await _answer(backend, rows[:0])).shape == (0, 1)


@pytest.mark.slow
@pytest.mark.contract("B-16")
@pytest.mark.parametrize("kind", ["binary", "multiclass"])
@pytest.mark.parametrize("framework", ["lightgbm", "xgboost_json"])
async def test_what_each_feature_adds_is_the_frameworks_answer(
    open_backend: Open, version: Path, rows: Any, kind: str, framework: str
) -> None:
    file = version / FILES[framework]
    if framework == "lightgbm":
        expected = forests.lightgbm(rows, kind, file).predict(rows, pred_contrib=True)
    else:
        expected = forests.xgboost(rows, kind, file)(rows, pred_contribs=True)
    dims = (3, 6) if kind == "multiclass" else (6,)
    config = forests.config(model_type=framework, is_classifier="true")
    shap = graphs.tensor_out("treeshap_output", DataType.FP32, *dims)
    backend = await open_backend(replace(config, output=(*config.output, shap)))
    answer = await _answer(backend, rows, "treeshap_output")
    assert_allclose(answer, np.asarray(expected).reshape(len(rows), *dims), atol=1e-5)


# -- trees as machine code -------------------------------------------------------------------------

_COMPILED: dict[str, Any] = {"model_type": "lightgbm", "is_classifier": "true", COMPILE: "true"}


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")
@pytest.mark.contract("B-16")
@pytest.mark.parametrize("kind", ["binary", "multiclass"])
@pytest.mark.parametrize("framework", ["lightgbm", "xgboost_json"])
async def test_compiled_trees_answer_as_they_do_otherwise(
    open_backend: Open, version: Path, rows: Any, kind: str, framework: str
) -> None:
    make = forests.lightgbm if framework == "lightgbm" else forests.xgboost
    make(rows, kind, version / FILES[framework])
    width = 3 if kind == "multiclass" else 1
    given: dict[str, Any] = {"model_type": framework, "is_classifier": "true"}
    given["predict_proba"] = "true"
    plain = await open_backend(forests.config(width, **given))
    given[COMPILE] = "true"
    config = forests.config(width, **given)
    compiled = [await open_backend(config) for _ in range(2)]  # of one library
    expected = await _answer(plain, rows)
    for backend in compiled:
        assert_allclose(await _answer(backend, rows), expected, atol=1e-6)
    assert (await _answer(compiled[0], rows[:0])).shape == (0, width)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")
async def test_a_library_of_trees_goes_with_the_last_instance(
    version: Path, rows: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forests.lightgbm(rows, "binary", version / "model.txt")
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    async with running(FilBackend, forests.config(**_COMPILED), version):
        assert [file.name for file in folder.glob("penstock-trees-*/*.so")] == ["trees.so"]
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("programs", "module", "text"),
    [
        ("/nowhere", "", "needs a C compiler, and there is neither gcc nor clang here"),
        ("", "tl2cgen", "'penstock.compile_trees' needs a package.* pip install tl2cgen"),
    ],
)
async def test_what_compiling_needs_is_named(
    open_backend: Open,
    version: Path,
    rows: Any,
    monkeypatch: pytest.MonkeyPatch,
    programs: str,
    module: str,
    text: str,
) -> None:
    forests.lightgbm(rows, "binary", version / "model.txt")
    if programs:
        monkeypatch.setenv("PATH", programs)
    if module:
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ModelLoadError, match=text):
        await open_backend(forests.config(**_COMPILED))


@pytest.mark.slow
async def test_a_compiler_that_fails_refuses_the_model(
    open_backend: Open, version: Path, rows: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forests.lightgbm(rows, "binary", version / "model.txt")
    (tmp_path / "gcc").write_text("#!/bin/sh\necho no space left >&2\nexit 1\n")
    (tmp_path / "gcc").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(ModelLoadError, match="'trees': its trees could not be compiled: "):
        await open_backend(forests.config(**_COMPILED))


# -- parameters ------------------------------------------------------------------------------------


@pytest.mark.contract("B-16")
@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"is_classifier": "true", "model_type": "onnx"}, "onnx not recognized as a valid"),
        ({}, "parameter 'is_classifier' is missing"),
        ({"is_classifier": "maybe"}, "'is_classifier' must be true or false, not 'maybe'"),
        ({"is_classifier": "true", "threshold": "half"}, "'threshold' must be a number"),
        ({"is_classifier": "true", "cpu_nthread": "all"}, "'cpu_nthread' must be a whole number"),
    ],
)
def test_a_parameter_without_sense_is_refused(given: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        FilBackend.check_config(forests.config(**given))


@pytest.mark.contract("B-16")
def test_parameters_of_older_releases_are_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    config = forests.config(output_class="false", algo="ALGO_AUTO", is_classifier="true")
    FilBackend.check_config(config)
    assert not FilSettings.from_config(config).is_classifier  # the older one wins
    assert (
        "The `output_class` parameter has been removed in 25.09 release. Use `is_classifier`"
        " instead." in caplog.text
    )
    assert "The `algo` parameter has been removed" in caplog.text


def test_threads_are_those_of_the_parameter() -> None:
    config = forests.config(is_classifier="true", cpu_nthread="3")
    assert FilSettings.from_config(config).threads == 3


def test_forests_are_on_cpus_only() -> None:
    group = InstanceGroup(kind=InstanceKind.KIND_GPU)
    config = replace(forests.config(is_classifier="true"), instance_group=(group,))
    with pytest.raises(ConfigError, match="KIND_GPU, but trees run on CPUs here"):
        FilBackend.check_config(config)


# -- completion ------------------------------------------------------------------------------------


@pytest.mark.contract("B-16")
@pytest.mark.parametrize(("proba", "width"), [("true", 3), ("false", 1)])
async def test_tensors_are_completed_from_the_trees(
    version: Path, rows: Any, proba: str, width: int
) -> None:
    forests.lightgbm(rows, "multiclass", version / "model.txt")
    given = graphs.parameters(model_type="lightgbm", is_classifier="true", predict_proba=proba)
    bare = ModelConfig("trees", backend="fil", parameters=given)
    completed = await FilBackend.complete_config(bare, version, {})
    assert completed.input == (graphs.tensor_in("input__0", DataType.FP32, 5),)
    assert completed.output == (graphs.tensor_out("output__0", DataType.FP32, width),)
    assert completed.max_batch_size == 4


# -- bad input -------------------------------------------------------------------------------------


@pytest.mark.parametrize("model_type", list(FILES))
@pytest.mark.parametrize("content", [b"", b"no forest at all", b'{"learner": {}}', b"tree\n" * 9])
async def test_a_foreign_file_is_refused(
    open_backend: Open, version: Path, model_type: str, content: bytes
) -> None:
    (version / FILES[model_type]).write_bytes(content)
    with pytest.raises(ModelLoadError, match=f"is not a {model_type} file that treelite reads"):
        await open_backend(forests.config(model_type=model_type, is_classifier="true"))


async def test_a_folder_in_the_place_of_the_file_is_refused(
    open_backend: Open, version: Path
) -> None:
    (version / FILES["lightgbm"]).mkdir()
    with pytest.raises(ModelLoadError, match=r"model\.txt is no file"):
        await open_backend(forests.config(model_type="lightgbm", is_classifier="true"))


@pytest.mark.contract("SEC-15")
async def test_a_pickle_is_refused_and_not_run(open_backend: Open, version: Path) -> None:
    (version / FILES["treelite_checkpoint"]).write_bytes(pickle.dumps({"trees": []}))
    with pytest.raises(ModelLoadError, match="it is a pickle, which this backend never reads"):
        await open_backend(forests.config(model_type="treelite_checkpoint", is_classifier="true"))


@pytest.mark.parametrize("part", [0.2, 0.5, 0.9])
async def test_a_truncated_file_is_refused(
    open_backend: Open, version: Path, rows: Any, part: float
) -> None:
    forests.xgboost(rows, "binary", version / "xgboost.ubj")
    whole = (version / "xgboost.ubj").read_bytes()
    (version / "xgboost.ubj").write_bytes(whole[: int(len(whole) * part)])
    with pytest.raises(ModelLoadError, match="is not a xgboost_ubj file"):
        await open_backend(forests.config(model_type="xgboost_ubj", is_classifier="true"))


@pytest.mark.slow
async def test_a_damaged_checkpoint_ends_no_server(
    open_backend: Open, version: Path, rows: Any, tmp_path: Path
) -> None:
    import treelite

    forests.lightgbm(rows, "binary", tmp_path / "model.txt")
    trees = treelite.frontend.load_lightgbm_model(tmp_path / "model.txt")
    trees.serialize(version / "checkpoint.tl")
    whole = (version / "checkpoint.tl").read_bytes()
    config = forests.config(model_type="treelite_checkpoint", is_classifier="true")
    for start in (0, 350):  # its version, and the lengths of a tree's arrays
        damaged = whole[:start] + b"\xff" * 40 + whole[start + 40 :]
        (version / "checkpoint.tl").write_bytes(damaged)
        with pytest.raises(ModelLoadError, match="is not a treelite_checkpoint file"):
            await open_backend(config)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("child", "end"), [("-2147483648", "signal"), ("0", "not read in 10 s of processor time")]
)
async def test_a_damaged_text_of_lightgbm_ends_no_server(
    open_backend: Open, version: Path, rows: Any, child: str, end: str
) -> None:
    """A child that is none, or the tree's root again: reading ends the process, or never ends."""
    forests.lightgbm(rows, "binary", version / "model.txt")
    text = (version / "model.txt").read_text()
    (version / "model.txt").write_text(re.sub(r"left_child=\S+", f"left_child={child}", text))
    with pytest.raises(ModelLoadError, match=f"is not a lightgbm file.* {end}"):
        await open_backend(forests.config(model_type="lightgbm", is_classifier="true"))


async def test_a_wrong_number_of_features_is_refused(
    open_backend: Open, version: Path, rows: Any
) -> None:
    forests.lightgbm(rows, "binary", version / "model.txt")
    config = forests.config(1, 4, model_type="lightgbm", is_classifier="true")
    with pytest.raises(ModelLoadError, match=r"the model expects shape \[-1,5\]"):
        await open_backend(config)


async def test_a_missing_file_is_named(open_backend: Open, version: Path) -> None:
    with pytest.raises(ModelLoadError, match=rf"file {version}/xgboost\.json does not exist"):
        await open_backend(forests.config(model_type="xgboost_json", is_classifier="true"))


@pytest.mark.parametrize(
    ("module", "output", "package"),
    [
        ("treelite", "output__0", r"penstock\[fil\]"),
        ("lightgbm", "treeshap_output", "lightgbm"),
    ],
)
async def test_a_missing_package_is_named(
    open_backend: Open,
    version: Path,
    rows: Any,
    monkeypatch: pytest.MonkeyPatch,
    module: str,
    output: str,
    package: str,
) -> None:
    forests.lightgbm(rows, "binary", version / "model.txt")
    config = forests.config(model_type="lightgbm", is_classifier="true")
    tensor = graphs.tensor_out(output, DataType.FP32, 1)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(BackendNotInstalledError, match=f"pip install '?{package}"):
        await open_backend(replace(config, output=(tensor,)))


async def test_the_framework_of_a_checkpoint_is_unknown(
    open_backend: Open, version: Path, rows: Any, tmp_path: Path
) -> None:
    import treelite

    forests.lightgbm(rows, "binary", tmp_path / "model.txt")
    trees = treelite.frontend.load_lightgbm_model(tmp_path / "model.txt")
    trees.serialize(version / "checkpoint.tl")
    config = forests.config(model_type="treelite_checkpoint", is_classifier="true")
    shap = graphs.tensor_out("treeshap_output", DataType.FP32, 6)
    with pytest.raises(ModelLoadError, match="serve the framework's own file"):
        await open_backend(replace(config, output=(*config.output, shap)))
