"""Backends that are a `model.py` in a directory, shared by models that hold only data."""

from __future__ import annotations

import json
import os
import re
import signal
from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np
import pytest

from conformance.python_models.client import Client, RefusedError
from conformance.python_models.repository import write_models
from harness.serving import Served, alive, serving, wait_until

pytestmark = pytest.mark.contract("PY-43", "CL-48")

# Multiplies by the number that lies with the model, and tells of itself.
_SCALER = """
    import json
    import os

    import numpy as np
    import triton_python_backend_utils as pb_utils

    import constants
    from .constants import STEPS
    from steps.more import MORE


    class TritonPythonModel:
        @staticmethod
        def auto_complete_config(config):
            config.add_input({"name": "X", "data_type": "TYPE_FP32", "dims": [-1]})
            config.add_output({"name": "Y", "data_type": "TYPE_FP32", "dims": [-1]})
            config.add_output({"name": "TOLD", "data_type": "TYPE_STRING", "dims": [1]})
            return config

        def initialize(self, args):
            version = os.path.join(args["model_repository"], args["model_version"])
            with open(os.path.join(version, "factor")) as file:
                self.factor = float(file.read()) * STEPS[0] * MORE
            told = {**args, "pid": os.getpid(), "version": version, "file": __file__,
                    "directory": pb_utils.get_model_dir()}
            self.told = np.array([json.dumps(told)], np.object_)

        def execute(self, requests):
            return [pb_utils.InferenceResponse([
                pb_utils.Tensor("Y", r.inputs()[0].as_numpy() * np.float32(self.factor)),
                pb_utils.Tensor("TOLD", self.told),
            ]) for r in requests]
"""

# The asyncio form; the work is done in a process that knows the module by its name.
_ASYNCIO = """
    import asyncio
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor

    from penstock.model import DataType, Input, Model, ModelConfig, Output, Response


    def seven_times(values):
        return values * 7


    class Scaler(Model):
        config = ModelConfig(
            input=(Input("X", DataType.FP32, dims=(-1,)),),
            output=(Output("Y", DataType.FP32, dims=(-1,)),),
        )

        async def load(self, context):
            self.pool = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))

        async def infer(self, request):
            loop = asyncio.get_running_loop()
            return Response({"Y": await loop.run_in_executor(self.pool, seven_times, request["X"])})
"""

_BACKENDS = {
    "asynchronous/model.py": _ASYNCIO,
    "scaler/model.py": _SCALER,
    "scaler/constants.py": "STEPS = [1]\n",
    "scaler/steps/more.py": "MORE = 1\n",
    # Named as a package that it stands on, which must be found behind it.
    "numpy/model.py": _SCALER,
    "numpy/constants.py": "STEPS = [3]\n",
    "numpy/steps/more.py": "MORE = 1\n",
    "broken/model.py": 'raise ValueError("kaput")\n',
    "foreign/libtriton_foreign.so": "no Python",
    # As installations of Triton have them; the backends of that name are our own.
    "identity/libtriton_identity.so": "no Python",
    "identity/model.py": 'raise ValueError("the library comes first")\n',
    "python/libtriton_python.so": "no Python",
    "empty/readme": "nothing to run",
}

_ONE = "dims: [-1] data_type: TYPE_FP32"
_TENSORS = f'input [ {{ name: "X" {_ONE} }} ] output [ {{ name: "Y" {_ONE} }} ]'


class Data:
    """A model without code."""

    def __init__(self, backend: str, config: str = "", **files: str) -> None:
        self._config = f'backend: "{backend}"\n{config}\n'
        self._files = files

    def write(self, directory: Path) -> None:
        (directory / "config.pbtxt").write_text(self._config)
        (directory / "1").mkdir()
        for name, text in self._files.items():
            (directory / "1" / name.replace("_py", ".py")).write_text(text)


_RAISES = 'raise ValueError("code of the model itself")\n'

GOOD = {
    "double": Data("scaler", factor="2"),
    "treble": Data("scaler", 'default_model_filename: "model.py"', factor="3", model_py=_RAISES),
    "library": Data("numpy", factor="2"),
    "asynchronous": Data("asynchronous"),
    "asked": Data("scaler", 'runtime: "model.py"', factor="5"),
}
BAD = {
    "bad": Data("broken"),
    "strange": Data("foreign"),
    "missing": Data("empty"),
    "named": Data("empty", 'runtime: "model.py"'),
    "shared": Data("scaler", 'runtime: "libtriton_other.so"'),
}
MODELS = {
    **GOOD,
    **BAD,
    "ours": Data("identity", f"{_TENSORS} instance_group [ {{ kind: KIND_CPU }} ]"),
}
ONES = {"X": np.ones(2, np.float32)}


def write_backends(directory: Path) -> Path:
    for name, text in _BACKENDS.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text).lstrip())
    return directory


@pytest.fixture(scope="module")
def backends(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_backends(tmp_path_factory.mktemp("backends"))


@pytest.fixture(scope="module")
def server(repository: Path, backends: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    log = tmp_path_factory.mktemp("log") / "log"
    arguments = (f"--backend-directory={backends}", "--exit-on-error=false")
    with serving(repository, log, *arguments, "--strict-readiness=false") as served:
        yield served


def told(client: Client, model: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(client.infer(model, ONES)["TOLD"][0])
    return found


@pytest.mark.parametrize(
    ("model", "factor"),
    [("double", 2), ("treble", 3), ("library", 6), ("asked", 5), ("asynchronous", 7)],
)
def test_models_with_data_only_share_the_code(client: Client, model: str, factor: int) -> None:
    assert client.infer(model, ONES)["Y"].tolist() == [factor, factor]


def test_the_model_is_told_of_its_own_directory(
    client: Client, repository: Path, backends: Path
) -> None:
    for model in ("double", "treble"):
        found = told(client, model)
        assert found["model_name"] == model
        assert found["model_repository"] == str(repository / model)
        assert found["directory"] == str(repository / model / "1")
        assert found["file"] == str(backends / "scaler" / "model.py")
        config = json.loads(found["model_config"])
        assert (config["backend"], config["runtime"]) == ("scaler", "model.py")


def test_a_backend_of_ours_is_not_replaced_by_a_library(client: Client) -> None:
    assert client.infer("ours", ONES)["Y"].tolist() == [1, 1]


def test_backends_and_what_they_were_told_are_in_a_table(server: Served, backends: Path) -> None:
    text = server.log.read_text()
    table = text[text.index("| Backend ") : text.index("| Model ")]
    rows = {
        row[0]: row[1:] for row in re.findall(r"^\| (\S+) +\| (\S+) +\| (\S+) +\|", table, re.M)
    }
    assert rows.pop("Backend") == ("Path", "Config")
    assert set(rows) == {"python", "scaler", "asynchronous", "numpy", "broken", "identity"}
    assert rows["scaler"][0] == f"{backends}/scaler/model.py"
    assert list(rows).index("python") < list(rows).index("scaler")
    assert json.loads(rows["scaler"][1]) == {
        "cmdline": {
            "auto-complete-config": "true",
            "backend-directory": str(backends),
            "min-compute-capability": "6.000000",
            "default-max-batch-size": "4",
        }
    }


@pytest.mark.parametrize(
    ("model", "why"),
    [
        ("bad", r"ValueError: kaput\"\n    At:\n.*broken/model\.py"),
        ("strange", r"unable to find backend 'foreign'.*libtriton_foreign\.so' is a shared"),
        ("missing", r"unable to find backend 'empty'; installed .*; there is no '\S+/model\.py'"),
        ("named", r"backend library 'model\.py' for model 'named', searched: '\S+empty/model\.py'"),
        ("shared", r"unable to find backend library 'libtriton_other\.so' for model 'shared'"),
    ],
)
def test_what_is_no_such_backend_is_refused_by_name(server: Served, model: str, why: str) -> None:
    text = server.log.read_text()
    assert re.search(rf"failed to load '{model}'.*{why}", text), text


def test_a_process_that_was_killed_is_started_again(client: Client) -> None:
    first = told(client, "double")["pid"]
    other = told(client, "treble")["pid"]
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: not alive(first))
    wait_until(lambda: _answers(client, "double"))
    assert told(client, "double")["pid"] != first
    assert told(client, "treble")["pid"] == other


def _answers(client: Client, model: str) -> bool:
    try:
        return bool(client.infer(model, ONES)["Y"].tolist() == [2, 2])
    except RefusedError:
        return False


@pytest.mark.parametrize(
    "flag", ["--backend-directory={}", "--backend-config=backend-directory={}"]
)
def test_the_directory_may_be_relative_and_a_setting_of_all_backends(
    flag: str, backends: Path, tmp_path: Path
) -> None:
    repository = write_models(tmp_path / "models", {"double": GOOD["double"]})
    place = flag.format(os.path.relpath(backends))
    other = f"--backend-config=scaler,backend-directory={tmp_path}"  # of no effect, as at Triton
    with (
        serving(repository, tmp_path / "log", place, other) as server,
        Client(server.grpc) as client,
    ):
        assert client.infer("double", ONES)["Y"].tolist() == [2, 2]


@pytest.mark.parametrize("arguments", [(), ("--backend-directory=/nowhere",)])
def test_without_the_directory_only_installed_backends_are_found(
    arguments: tuple[str, ...], tmp_path: Path
) -> None:
    models = {name: MODELS[name] for name in ("double", "asked", "ours")}
    repository = write_models(tmp_path / "models", models)
    log = tmp_path / "log"
    with (
        serving(repository, log, "--exit-on-error=false", *arguments) as server,
        Client(server.grpc) as client,
    ):
        assert client.infer("ours", ONES)["Y"].tolist() == [1, 1]
    text = log.read_text()
    assert "unable to find backend 'scaler'; installed backends: " in text
    needs = "searched: '/nowhere/scaler/model.py'" if arguments else "needs --backend-directory"
    assert needs in text
