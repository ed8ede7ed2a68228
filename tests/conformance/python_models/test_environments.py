"""Models that bring the Python environment which they run in."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from textwrap import dedent

import numpy as np
import pytest

from conformance.python_models.client import Client
from conformance.python_models.repository import PythonModel, parameter, write_models
from harness.serving import alive, serving, start, wait_until

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


_PLAIN = replace(
    teller(parameter("EXECUTION_ENV_PATH", "")),
    code=_TELLER.replace("greeting", "sys").replace("sys.WORDS", "sys.executable"),
)


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where the servers keep environments, empty at first."""
    directory = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PENSTOCK_CACHE", str(directory))
        patch.setenv("PIP_COMPILE", "0")  # all of numpy, of which a model needs little
        yield directory / "environments"


def environment(directory: Path) -> Path:
    """A virtual environment with `greeting`, and with the numpy of this one."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", directory], check=True)
    (packages,) = directory.glob("lib/python*/site-packages")
    (packages / "greeting.py").write_text('WORDS = "from its own environment"\n')
    (packages / "shared.pth").write_text(f"{Path(np.__file__).parent.parent}\n")
    return directory


def write_wheel(directory: Path) -> str:
    """A wheel with a `greeting`; its name."""
    wheel = directory / "greeting-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as content:
        content.writestr("greeting.py", 'WORDS = "installed"\n')
        about = "greeting-1.0.dist-info"
        content.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: greeting\nVersion: 1.0")
        content.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any")
        content.writestr(f"{about}/RECORD", "")
    return wheel.name


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with models that name an environment in every way, and with their backends."""
    home = tmp_path_factory.mktemp("home")
    with tarfile.open(home / "own.tar.gz", "w:gz") as packed:
        packed.add(environment(home / "own"), ".")
    models = {
        "beside": teller(parameter("EXECUTION_ENV_PATH", "$$TRITON_MODEL_DIRECTORY/own")),
        "elsewhere": teller(parameter("EXECUTION_ENV_PATH", home / "own")),
        "from_here": teller(parameter("EXECUTION_ENV_PATH", "own")),
        "packed": teller(parameter("EXECUTION_ENV_PATH", home / "own.tar.gz")),
        "packed_here": teller(parameter("EXECUTION_ENV_PATH", "own.tar.gz")),
        "requiring": teller(),
        "backed": replace(teller(), code="", files={"data": ""}, backend="teller"),
        "plain": _PLAIN,
    }
    repository = write_models(home / "models", models)
    environment(repository / "beside" / "own")
    (home / "backends" / "teller").mkdir(parents=True)
    (home / "backends" / "teller" / "model.py").write_text(dedent(_TELLER))
    wheel = write_wheel(repository / "requiring")
    (repository / "requiring" / "requirements.txt").write_text(f"./{wheel}\n")
    required = (repository / "requiring" / wheel).as_uri()
    (home / "backends" / "teller" / "requirements.txt").write_text(f"{required}\n")
    return home


@dataclass(frozen=True)
class Life:
    """What a server has logged, and its models have told: their environments and words."""

    log: str
    told: dict[str, tuple[str, str]]


@pytest.fixture(scope="module")
def lives(home: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Life]:
    """Two servers over the models: the first with paths from where it is started."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        return [
            live(
                parent / "models",
                tmp_path_factory.mktemp("log") / "log",
                f"--backend-directory={parent / 'backends'}",
            )
            for parent in (Path(), home)
        ]


def live(repository: Path, log: Path, *arguments: str) -> Life:
    told = {}
    with serving(repository, log, *arguments) as server, Client(server.grpc) as client:
        for model in repository.iterdir():
            prefix, words = client.infer(model.name, {"X": np.zeros(1, np.float32)})["Y"]
            told[model.name] = prefix.decode(), words.decode()
    return Life(log.read_text(), told)


@pytest.mark.contract("PY-35")
@pytest.mark.parametrize(
    ("name", "where"),
    [("beside", "models/beside/own"), ("elsewhere", "own"), ("from_here", "own")],
)
def test_environment_may_be_a_directory(
    lives: list[Life], home: Path, name: str, where: str
) -> None:
    own = str(home / where)
    assert [life.told[name] for life in lives] == [(own, "from its own environment")] * 2


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
    told = live(repository, tmp_path / "log").told
    assert told == {"teller": (str(own), "from its own environment")}
    assert (tmp_path / "uses").read_text().split() == ["-c", "-P", "-P"]


@pytest.mark.contract("PY-35")
@pytest.mark.parametrize("name", ["packed", "packed_here"])
def test_packed_environment_is_unpacked_once(lives: list[Life], cache: Path, name: str) -> None:
    for prefix, words in (life.told[name] for life in lives):
        assert Path(prefix).parent == cache
        assert words == "from its own environment"
    assert [life.log.count("unpacking environment") for life in lives] == [1, 0]


@pytest.mark.contract("PY-43", "CL-48")
@pytest.mark.parametrize("name", ["requiring", "backed"])
def test_packages_that_a_model_or_its_backend_requires_are_installed_once(
    lives: list[Life], cache: Path, name: str
) -> None:
    for prefix, words in (life.told[name] for life in lives):
        assert Path(prefix).parent == cache
        assert words == "installed"
    assert f"model '{name}': its environment is ready" in lives[0].log
    created = f"model '{name}': creating its environment"
    assert [created in life.log for life in lives] == [True, False]


def test_no_environment_is_the_one_of_the_server(lives: list[Life]) -> None:
    assert [life.told["plain"] for life in lives] == [(sys.prefix, sys.executable)] * 2


_NONE = {
    "nowhere": ("/nowhere/at/all", "'/nowhere/at/all' is neither a directory nor an archive"),
    "empty": ("$$TRITON_MODEL_DIRECTORY/1", "has no bin/python"),
    "strange": ("$$TRITON_MODEL_DIRECTORY/config.pbtxt", "cannot be unpacked"),
}


@pytest.fixture(scope="module")
def refusals(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The log of a server that could load none of its models."""
    models = {
        name: teller(parameter("EXECUTION_ENV_PATH", where)) for name, (where, _) in _NONE.items()
    }
    repository = write_models(tmp_path_factory.mktemp("models"), {**models, "wanting": teller()})
    (repository / "wanting" / "requirements.txt").write_text("/nowhere/nothing-1.0.whl\n")
    log = tmp_path_factory.mktemp("log") / "log"
    assert start(repository, log).wait(120) == 1
    return log.read_text()


@pytest.mark.parametrize("name", _NONE)
def test_environment_that_is_none_is_refused(refusals: str, name: str) -> None:
    assert re.search(rf"failed to load '{name}'.*{re.escape(_NONE[name][1])}", refusals), refusals


def test_packages_that_cannot_be_had_are_refused_with_the_words_of_pip(refusals: str) -> None:
    why = r"failed to load 'wanting'.*failed with status 1: .*nothing-1\.0"
    assert re.search(why, refusals), refusals


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
