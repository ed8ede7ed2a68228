"""One class of a Python file, served without a repository."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest
from tritonclient.grpc import InferenceServerClient, InferInput
from tritonclient.utils import InferenceServerException

from harness.serving import Served, serving, start, wait_until
from penstock.app.model_files import with_model_files
from penstock.models.sources.draft import Wishes
from penstock.models.sources.recognise import model_of
from penstock.settings import RepositorySettings

MODEL = """
from factors import FACTOR
from penstock.model import Context, DataType, Input, Model, ModelConfig, Output, Request, Response

class Scale(Model):
    config = ModelConfig(
        input=(Input("IN", DataType.FP32, dims=(-1,)),),
        output=(Output("OUT", DataType.FP32, dims=(-1,)),),
    )

    async def load(self, context: Context) -> None:
        self.offset = float((context.path / "offset.txt").read_text())

    async def infer(self, request: Request) -> Response:
        return Response({"OUT": request["IN"] * FACTOR + self.offset})
"""
PLAIN = """
from penstock.model import Context, DataType, Input, Model, ModelConfig, Output, Request, Response

class Plain(Model):
    config = ModelConfig(
        input=(Input("IN", DataType.FP32, dims=(-1,)),),
        output=(Output("OUT", DataType.FP32, dims=(-1,)),),
    )

    def load(self, context: Context) -> None:
        self.offset = 1.0

    def infer(self, request: Request) -> Response:
        if request["IN"].size == 0:
            raise ValueError("nothing to do")
        return Response({"OUT": request["IN"] + self.offset})
"""
TRITON = "class TritonPythonModel:\n    def execute(self, requests): return []\n"


@pytest.fixture
def author(tmp_path: Path) -> Path:
    """The folder of an author, with a module and a file beside the model, and much else."""
    folder = tmp_path / "author"
    (folder / ".venv" / "lib").mkdir(parents=True)
    (folder / "model.py").write_text(MODEL)
    (folder / "factors.py").write_text("FACTOR = 2")
    (folder / "offset.txt").write_text("0.5")
    return folder


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the server keeps temporary folders."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return folder


@pytest.fixture
def served(author: Path, temporary: Path, tmp_path: Path) -> Iterator[Served]:
    file = f"{author}/model.py:Scale"
    flags = ("--model-control-mode=explicit",)
    with serving(None, tmp_path / "log", file, f"other={file}", *flags) as server:
        yield server


def _ask(server: Served, name: str, values: list[float]) -> list[float]:
    tensor = InferInput("IN", [len(values)], "FP32")
    tensor.set_data_from_numpy(np.array(values, np.float32))
    with InferenceServerClient(server.grpc) as client:
        answer: list[float] = client.infer(name, [tensor]).as_numpy("OUT").tolist()
    return answer


def test_version_links_the_files_that_a_model_may_need(
    author: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither what is hidden, nor the environment, nor the repository itself, as in `/tmp`."""
    monkeypatch.setattr(tempfile, "tempdir", str(author))
    (author / "env").mkdir()
    (author / "env" / "pyvenv.cfg").touch()
    (author / "config.pbtxt").touch()
    draft = model_of(f"{author}/model.py:Scale", Wishes())
    assert draft is not None
    files = (draft.model_file(Wishes()),)
    with with_model_files(RepositorySettings(files=files)) as settings:
        version = Path(settings.paths[0], "scale", "1")
        names = {entry.name for entry in version.iterdir()}
    assert names == {"model.py", "factors.py", "offset.txt"}


@pytest.mark.slow
def test_model_imports_files_beside_it(served: Served) -> None:
    assert _ask(served, "scale", [1.0, 2.0]) == [2.5, 4.5]
    assert _ask(served, "other", [1.0]) == [2.5]


@pytest.mark.slow
def test_model_is_loaded_again_from_its_file(served: Served, author: Path) -> None:
    (author / "offset.txt").write_text("10")
    path = f"http://{served.http}/v2/repository/models/scale/load"
    httpx.post(path, timeout=60, verify=False).raise_for_status()
    assert _ask(served, "scale", [1.0]) == [12.0]


@pytest.mark.slow
def test_nothing_is_left_behind(served: Served, temporary: Path) -> None:
    assert [path.name[:15] for path in temporary.iterdir()] == ["penstock-serve-"]
    assert served.stop() == 0
    assert list(temporary.iterdir()) == []


@pytest.mark.slow
def test_file_stands_beside_a_repository(author: Path, tmp_path: Path) -> None:
    version = tmp_path / "models" / "idle" / "1"
    version.mkdir(parents=True)
    (version / "model.py").write_text(TRITON)
    with serving(tmp_path / "models", tmp_path / "log", f"{author}/model.py") as server:
        index = httpx.post(f"http://{server.http}/v2/repository/index", verify=False).json()
    assert {(model["name"], model["state"]) for model in index} == {
        ("idle", "READY"),
        ("scale", "READY"),
    }


@pytest.mark.slow
def test_changed_file_is_loaded_where_the_server_looks(author: Path, tmp_path: Path) -> None:
    flags = ("--model-control-mode=poll", "--repository-poll-secs=1")
    with serving(None, tmp_path / "log", f"{author}/model.py", *flags) as server:
        (author / "offset.txt").write_text("100")
        wait_until(lambda: _ask(server, "scale", [1.0]) == [102.0])


@pytest.mark.slow
def test_class_that_is_not_a_model_is_refused(author: Path, tmp_path: Path) -> None:
    (author / "model.py").write_text("class Scale: ...")
    process = start(None, tmp_path / "log", f"{author}/model.py:Scale")
    assert process.wait(60) == 1
    assert "'Scale' in " in (tmp_path / "log").read_text()
    assert "is not a model: it is neither made from" in (tmp_path / "log").read_text()


@pytest.mark.slow
def test_first_minute_of_the_readme(tmp_path: Path) -> None:
    """Its class, its command and its request, as they are written there."""
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    (minute,) = re.findall(r"^The first minute(.*?)^More about", readme, re.MULTILINE | re.DOTALL)
    (code,) = re.findall(r"```python\n(.*?)```", minute, re.DOTALL)
    (file,) = re.findall(r"penstock serve (\S+)", minute)
    (path, body) = re.findall(r"curl localhost:8000(\S+) .*?-d '(.*?)'", minute, re.DOTALL)[0]
    (tmp_path / "model.py").write_text(code)
    with serving(None, tmp_path / "log", f"{tmp_path}/{file}") as server:
        answer = httpx.post(f"http://{server.http}{path}", content=body, verify=False).json()
    assert answer["outputs"][0]["data"] == [2.0, 4.0]


@pytest.mark.slow
def test_a_class_without_async_is_served(tmp_path: Path, temporary: Path) -> None:
    (tmp_path / "plain.py").write_text(PLAIN)
    with serving(None, tmp_path / "log", f"plain={tmp_path}/plain.py") as server:
        assert _ask(server, "plain", [1.0, 2.0]) == [2.0, 3.0]
        with pytest.raises(InferenceServerException, match="ValueError: nothing to do"):
            _ask(server, "plain", [])
    text = server.log.read_text()
    frames = re.search(r'"ValueError: nothing to do" .*\n    At:\n(.*infer)\n\S', text)
    assert frames is not None, text


@pytest.mark.slow
def test_a_failed_start_names_the_file_that_was_given(tmp_path: Path) -> None:
    (tmp_path / "plain.py").write_text("import nowhere_at_all\n" + PLAIN)
    process = start(None, log := tmp_path / "log", f"{tmp_path}/plain.py")
    assert process.wait(60) == 1
    last = log.read_text().splitlines()[-1]
    assert last.startswith("model 'plain': version 1 is at UNAVAILABLE state: ")
    assert f"(at {tmp_path}/plain.py(1): <module>)" in last
