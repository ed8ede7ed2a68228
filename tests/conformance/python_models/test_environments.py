"""Models that bring the Python environment which they run in."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import tarfile
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from conformance.python_models.client import Client
from conformance.python_models.repository import PythonModel, parameter, write_models
from serving import alive, serving, start, wait_until

# Tells which interpreter it runs in, and what a package that only its environment has says.
_TELLER = """
    import sys

    import greeting
    import numpy as np
    import triton_python_backend_utils as pb_utils


    class TritonPythonModel:
        def execute(self, requests):
            told = np.array([sys.prefix.encode(), greeting.WORDS.encode()], np.object_)
            return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", told)]) for _ in requests]
"""


def teller(config: str = "") -> PythonModel:
    return PythonModel(_TELLER, inputs="X:FP32[-1]", outputs="Y:STRING[-1]", config=config)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the server keeps environments, empty."""
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "environments"


def environment(directory: Path) -> Path:
    """A virtual environment with `greeting`, and with the numpy of this one."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", directory], check=True)
    (packages,) = directory.glob("lib/python*/site-packages")
    (packages / "greeting.py").write_text('WORDS = "from its own environment"\n')
    (packages / "shared.pth").write_text(f"{Path(np.__file__).parent.parent}\n")
    return directory


def told(repository: Path, log: Path) -> tuple[str, str]:
    """The environment and the words of the model `teller`."""
    with serving(repository, log) as server, Client(server.grpc) as client:
        prefix, words = client.infer("teller", {"X": np.zeros(1, np.float32)})["Y"]
    return prefix.decode(), words.decode()


@pytest.mark.contract("PY-35")
def test_environment_may_be_a_directory_beside_the_model(tmp_path: Path) -> None:
    where = parameter("EXECUTION_ENV_PATH", "$$TRITON_MODEL_DIRECTORY/own")
    repository = write_models(tmp_path / "models", {"teller": teller(where)})
    own = environment(repository / "teller" / "own")
    assert told(repository, tmp_path / "log") == (str(own), "from its own environment")


def test_environment_is_looked_at_once_for_each_load(tmp_path: Path) -> None:
    """Though the process that completes the configuration and that of the instance need it."""
    own = environment(tmp_path / "own")
    python = own / "bin" / "python"
    real = python.rename(own / "bin" / "real")
    python.write_text(f'#!/bin/sh\necho "$1" >> {tmp_path}/uses\nexec {real} "$@"\n')
    python.chmod(0o755)
    model = teller(parameter("EXECUTION_ENV_PATH", own))
    code = model.code + (
        "        @staticmethod\n"
        "        def auto_complete_config(config):\n"
        "            assert greeting.WORDS\n"
        "            return config\n"
    )
    repository = write_models(tmp_path / "models", {"teller": replace(model, code=code)})
    assert told(repository, tmp_path / "log") == (str(own), "from its own environment")
    assert (tmp_path / "uses").read_text().split() == ["-c", "-P", "-P"]


@pytest.mark.contract("PY-35")
def test_packed_environment_is_unpacked_once(tmp_path: Path, cache: Path) -> None:
    archive = tmp_path / "own.tar.gz"
    with tarfile.open(archive, "w:gz") as packed:
        packed.add(environment(tmp_path / "own"), ".")
    where = parameter("EXECUTION_ENV_PATH", archive)
    repository = write_models(tmp_path / "models", {"teller": teller(where)})
    for number in range(2):
        prefix, words = told(repository, tmp_path / f"log-{number}")
        assert Path(prefix).parent == cache
        assert words == "from its own environment"
    assert "unpacking environment" in (tmp_path / "log-0").read_text()
    assert "unpacking environment" not in (tmp_path / "log-1").read_text()


def test_packages_that_a_model_requires_are_installed_once(tmp_path: Path, cache: Path) -> None:
    wheel = tmp_path / "greeting-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as content:
        content.writestr("greeting.py", 'WORDS = "installed"\n')
        about = "greeting-1.0.dist-info"
        content.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: greeting\nVersion: 1.0")
        content.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any")
        content.writestr(f"{about}/RECORD", "")
    repository = write_models(tmp_path / "models", {"teller": teller()})
    (repository / "teller" / wheel.name).write_bytes(wheel.read_bytes())
    (repository / "teller" / "requirements.txt").write_text(f"./{wheel.name}\n")
    for number in range(2):
        prefix, words = told(repository, tmp_path / f"log-{number}")
        assert Path(prefix).parent == cache
        assert words == "installed"
    assert "its environment is ready" in (tmp_path / "log-0").read_text()
    assert "creating its environment" not in (tmp_path / "log-1").read_text()


def test_no_environment_is_the_one_of_the_server(tmp_path: Path) -> None:
    model = PythonModel(_TELLER.replace("greeting", "sys").replace("sys.WORDS", "sys.executable"))
    model = replace(model, outputs="Y:STRING[-1]", config=parameter("EXECUTION_ENV_PATH", ""))
    assert told(write_models(tmp_path / "models", {"teller": model}), tmp_path / "log") == (
        sys.prefix,
        sys.executable,
    )


@pytest.mark.parametrize(
    ("where", "why"),
    [
        ("/nowhere/at/all", "'/nowhere/at/all' is neither a directory nor an archive"),
        ("$$TRITON_MODEL_DIRECTORY/1", "has no bin/python"),
        ("$$TRITON_MODEL_DIRECTORY/config.pbtxt", "cannot be unpacked"),
    ],
)
def test_environment_that_is_none_is_refused(tmp_path: Path, where: str, why: str) -> None:
    model = teller(parameter("EXECUTION_ENV_PATH", where))
    repository = write_models(tmp_path / "models", {"teller": model})
    log = tmp_path / "log"
    assert start(repository, log).wait(30) == 1
    assert why in log.read_text()


def test_packages_that_cannot_be_had_are_refused_with_the_words_of_pip(tmp_path: Path) -> None:
    repository = write_models(tmp_path / "models", {"teller": teller()})
    (repository / "teller" / "requirements.txt").write_text("/nowhere/nothing-1.0.whl\n")
    log = tmp_path / "log"
    assert start(repository, log).wait(60) == 1
    assert re.search(
        r"failed to load 'teller'.*failed with status 1: .*nothing-1\.0", log.read_text()
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_server_that_prepares_an_environment_can_be_stopped(
    tmp_path: Path, number: signal.Signals
) -> None:
    own = tmp_path / "own" / "bin"
    own.mkdir(parents=True)
    (own / "conda-unpack").touch()
    (own / "python").write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\nexec sleep 600\n")
    (own / "python").chmod(0o755)
    archive = tmp_path / "own.tar"
    with tarfile.open(archive, "w") as packed:
        packed.add(own.parent, ".")
    where = parameter("EXECUTION_ENV_PATH", archive)
    repository = write_models(tmp_path / "models", {"teller": teller(where)})
    server = start(repository, tmp_path / "log")
    wait_until(
        lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().endswith("\n")
    )
    server.send_signal(number)
    server.wait(20)
    wait_until(lambda: not alive(int((tmp_path / "pid").read_text())))
