"""`--model-namespacing`: models of one name in several repositories, as the real server has."""

from __future__ import annotations

import base64
import json
import re
import shutil
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
from tritonclient.utils import InferenceServerException

from harness.serving import Served, serving, wait_until

pytestmark = pytest.mark.contract("R-09", "CL-16")

_TENSORS = (
    'input { name: "X" data_type: TYPE_INT32 dims: [ 1 ] }'
    ' output { name: "Y" data_type: TYPE_INT32 dims: [ 1 ] }'
)
_JSON = (
    '"input": [{"name": "X", "data_type": "TYPE_INT32", "dims": [1]}],'
    ' "output": [{"name": "Y", "data_type": "TYPE_INT32", "dims": [1]}]'
)
_CODE = """
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        assert args["model_name"] == {name!r}, args["model_name"]

    def execute(self, requests):
        given = (pb_utils.get_input_tensor_by_name(each, "X").as_numpy() for each in requests)
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor("Y", (x + {adds}).astype(np.int32))])
            for x in given
        ]
"""
_AMBIGUOUS = (
    "There are 2 identifiers of model 'pre' in global map, model namespace must be provided to"
    " resolve ambiguity."
)


def _model(repository: Path, name: str, adds: int) -> None:
    folder = repository / name / "1"
    folder.mkdir(parents=True)
    (folder / "model.py").write_text(_CODE.format(name=name, adds=adds))
    (folder.parent / "config.pbtxt").write_text(f'backend: "python" {_TENSORS}')


def _pipeline(repository: Path, name: str, step: str) -> None:
    (repository / name / "1").mkdir(parents=True)
    maps = 'input_map { key: "X" value: "X" } output_map { key: "Y" value: "Y" }'
    steps = f'step {{ model_name: "{step}" model_version: -1 {maps} }}'
    (repository / name / "config.pbtxt").write_text(
        f'platform: "ensemble" {_TENSORS} ensemble_scheduling {{ {steps} }}'
    )


def _repositories(root: Path) -> list[Path]:
    """Two with a model `pre` and an ensemble of it, and one whose ensemble is of either."""
    one, two, three = root / "one", root / "two", root / "three"
    _model(one, "pre", 1)
    _model(two, "pre", 2)
    _model(two, "only", 5)
    _pipeline(one, "pipe_one", "pre")
    _pipeline(two, "pipe_two", "pre")
    _pipeline(one, "crossing", "only")
    _pipeline(three, "either", "pre")
    return [one, two, three]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return _repositories(tmp_path_factory.mktemp("repositories"))


@pytest.fixture(scope="module")
def server(folders: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    log = tmp_path_factory.mktemp("log") / "log"
    more = [f"--model-repository={folder}" for folder in folders[1:]]
    with serving(folders[0], log, *more, "--model-namespacing=true", *_GOES_ON) as server:
        yield server


_GOES_ON = ("--exit-on-error=false", "--strict-readiness=false")


def _asked(server: Served, path: str, body: object = None) -> Any:
    """The JSON of an answer, or of an error."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"http://{server.http}/v2/{path}", data)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.loads(answer.read() or "null")
    except urllib.error.HTTPError as error:
        return json.loads(error.read())


def _answer(server: Served, model: str) -> int:
    """The answer of a model to 10, over gRPC."""
    with grpcclient.InferenceServerClient(server.grpc) as client:
        given = grpcclient.InferInput("X", [1], "INT32")
        given.set_data_from_numpy(np.array([10], np.int32))
        return int(client.infer(model, [given]).as_numpy("Y")[0])


def _states(server: Served) -> dict[str, str]:
    return {each["name"]: each.get("state", "") for each in _asked(server, "repository/index", {})}


def test_an_ensemble_finds_the_model_of_its_own_repository(server: Served) -> None:
    assert [_answer(server, name) for name in ("pipe_one", "pipe_two")] == [11, 12]
    assert [_answer(server, name) for name in ("only", "crossing")] == [15, 15]


def test_a_name_of_two_models_is_refused_on_its_own(server: Served) -> None:
    with pytest.raises(InferenceServerException) as refused:
        _answer(server, "pre")
    assert refused.value.status() == "StatusCode.INVALID_ARGUMENT"
    assert refused.value.message() == _AMBIGUOUS
    assert _asked(server, "models/pre") == {"error": _AMBIGUOUS}


def test_full_names_tell_them_apart(server: Served, folders: list[Path]) -> None:
    assert [_answer(server, f"{folder}::pre") for folder in folders[:2]] == [11, 12]
    assert f"{folders[0]}::pre" in _states(server)
    with pytest.raises(InferenceServerException, match="is not found"):
        _answer(server, f"{folders[2]}::pre")


def test_an_ensemble_of_neither_repository_is_refused(server: Served) -> None:
    index = {each["name"]: each for each in _asked(server, "repository/index", {})}
    assert index["either"]["reason"] == (
        "ensemble either contains models that are not available or ambiguous: pre"
    )


def test_configurations_name_the_namespace(server: Served, folders: list[Path]) -> None:
    [step] = _asked(server, "models/pipe_two/config")["ensemble_scheduling"]["step"]
    assert (step["model_name"], step["model_namespace"]) == ("pre", str(folders[1]))


@pytest.mark.contract("ME-02")
def test_metrics_of_all_models_have_the_namespace(server: Served, folders: list[Path]) -> None:
    models = (("crossing", "pipe_one", "pre"), ("only", "pipe_two", "pre"))
    assert _labels(server) == {
        f'model="{name}",namespace="{folder}",version="1"'
        for folder, names in zip(folders[:2], models, strict=True)
        for name in names
    }


def _labels(server: Served) -> set[str]:
    with urllib.request.urlopen(server.metrics, timeout=60) as page:
        return {*re.findall(r"^nv_inference_count{(.*)}", page.read().decode(), re.MULTILINE)}


def test_loads_and_unloads_of_a_name_are_of_all_that_have_it(
    folders: list[Path], tmp_path: Path
) -> None:
    more = f"--model-repository={folders[1]}", "--allow-model-upload=true"
    options = ("--model-namespacing=true", "--model-control-mode=explicit", "--load-model=pre")
    with serving(folders[0], tmp_path / "log", *more, *options) as server:
        both = {f"{folder}::pre" for folder in folders[:2]}

        def ready() -> set[str]:
            return {name for name, state in _states(server).items() if state == "READY"}

        assert ready() == both
        _asked(server, "repository/models/pipe_one/load", {})
        assert ready() == both | {"pipe_one"}
        _asked(server, "repository/models/pre/unload", {})
        assert ready() == set()
        _asked(server, "repository/models/pre/load", {})
        assert ready() == both | {"pipe_one"}
        _asked(server, "repository/models/pipe_two/load", {})
        assert _answer(server, "pipe_two") == 12
        file = base64.b64encode(_CODE.format(name="pre", adds=7).encode()).decode()
        files = {
            "config": f'{{"name": "pre", "backend": "python", {_JSON}}}',
            "file:1/model.py": file,
        }
        assert _asked(server, "repository/models/pre/load", {"parameters": files}) is None
        assert [_answer(server, name) for name in both] == [17, 17]


def test_who_may_not_change_one_of_them_changes_none(folders: list[Path], tmp_path: Path) -> None:
    policy = tmp_path / "policy.toml"
    rule = f'callers = ["anyone"]\ncalls = ["*"]\nmodels = ["pre", "{folders[0]}::*"]'
    policy.write_text(f"[[rules]]\n{rule}\n")
    more = f"--model-repository={folders[1]}", f"--access-policy={policy}"
    options = ("--model-namespacing=true", "--model-control-mode=explicit")
    with serving(folders[0], tmp_path / "log", *more, *options) as server:
        refused = {"error": "the caller may not change models of this name"}
        for what in ("load", "unload"):
            assert _asked(server, f"repository/models/pre/{what}", {}) == refused
        assert list(_states(server)) == [f"{folders[0]}::pre"]


def test_a_second_model_of_a_name_comes_and_goes(tmp_path: Path) -> None:
    one, two, _ = _repositories(tmp_path)
    for name in ("pre", "pipe_two"):
        shutil.move(two / name, tmp_path / name)
    options = ("--model-namespacing=true", "--model-control-mode=poll", "--repository-poll-secs=1")
    more = f"--model-repository={two}"
    with serving(one, tmp_path / "log", more, *options) as server:
        assert _answer(server, "pre") == 11
        shutil.move(tmp_path / "pipe_two", two)
        shutil.move(tmp_path / "pre", two)
        wait_until(lambda: _states(server).get("pipe_two") == "READY")
        assert "pre" not in _states(server)
        assert [_answer(server, name) for name in ("pipe_one", "pipe_two")] == [11, 12]
        shutil.rmtree(two / "pre")
        wait_until(lambda: _answer(server, "pipe_two") == 11)  # it answers all the time
        assert [_answer(server, name) for name in ("pre", "pipe_one")] == [11, 11]
        shutil.move(one / "pre", two)  # the same files, of the same times
        moved = f'model="pre",namespace="{two}",version="1"'
        wait_until(lambda: {each for each in _labels(server) if '"pre"' in each} == {moved})
