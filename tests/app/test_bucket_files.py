"""Models that are single objects of a bucket, served and imported by their address."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tritonclient.grpc import InferenceServerClient, InferInput

from backends.tensor_models import graphs
from harness.object_store import ObjectStore, object_store
from harness.serving import serving, start
from penstock import cli
from penstock.models.config.pbtxt import read_pbtxt

ROWS = np.ones((1, 2), np.float32)
DOUBLE = """
from penstock.model import Model

class Double(Model):
    def predict(self, IN: "float32[-1]") -> {"OUT": "float32[-1]"}:
        return {"OUT": IN * 2}
"""


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ObjectStore]:
    """A bucket with a graph, its weights, labels and configuration, and what goes with neither."""
    variables = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}
    for name, value in {**variables, "HOME": str(tmp_path), "XDG_CACHE_HOME": ""}.items():
        monkeypatch.setenv(name, value)
    graphs.save_external(tmp_path / "plus.onnx", "plus.data")
    with object_store() as store:
        for name in ("plus.onnx", "plus.data"):
            store.put(f"raw/{name}", (tmp_path / name).read_bytes())
        store.put(
            "raw/plus.pbtxt",
            'output [ { name: "y" data_type: TYPE_FP32 dims: [ 2 ] label_filename: "names.txt" } ]',
        )
        store.put("raw/names.txt", "first\nsecond\n")
        store.put("raw/other.bin", b"not of this model" * 1000)
        store.put("raw/deep/plus.data", "not of this model")
        store.put("raw/net/1/model.onnx", (tmp_path / "plus.onnx").read_bytes())
        store.put("raw/net/1/plus.data", (tmp_path / "plus.data").read_bytes())
        store.put("raw/broken.pt", "no archive")
        yield store


@pytest.mark.slow
def test_an_object_of_a_bucket_is_served_with_what_belongs_to_it(
    store: ObjectStore, tmp_path: Path
) -> None:
    log, cache = tmp_path / "log", tmp_path / "cache"
    arguments = (f"{store.address}/raw/plus.onnx", f"--repository-cache-dir={cache}")
    for _ in range(2):
        with serving(None, log, *arguments) as served:
            given = InferInput("x", [1, 2], "FP32")
            given.set_data_from_numpy(ROWS)
            with InferenceServerClient(served.grpc) as client:
                assert client.infer("plus", [given]).as_numpy("y").shape == (1, 2)
            assert served.stop() == 0
        assert not list((cache / "runs").iterdir())
    assert store.gets == dict.fromkeys(
        ("raw/plus.onnx", "raw/plus.data", "raw/plus.pbtxt", "raw/names.txt"), 1
    )


def test_an_object_of_a_bucket_is_imported(
    store: ObjectStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    models = tmp_path / "models"
    source = f"{store.address}/raw/plus.onnx"
    assert cli.main(["import", source, str(models), "--name=adder"]) == 0, capsys.readouterr().err
    names = {path.name for path in (models / "adder" / "1").iterdir()}
    assert names >= {"plus.onnx", "plus.data"}
    assert read_pbtxt(models / "adder/config.pbtxt").backend == "onnxruntime"
    assert "raw/other.bin" not in store.gets


def test_weights_of_any_name_come_with_the_object(
    store: ObjectStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    graphs.save_external(tmp_path / "net.onnx", "blob.bin")
    for name in ("net.onnx", "blob.bin"):
        store.put(f"odd/{name}", (tmp_path / name).read_bytes())
    store.put("odd/other.bin", "not of this model")
    source, models = f"{store.address}/odd/net.onnx", tmp_path / "models"
    assert cli.main(["import", source, str(models)]) == 0, capsys.readouterr().err
    assert {path.name for path in (models / "net/1").iterdir()} == {"net.onnx", "blob.bin"}
    assert store.gets == {"odd/net.onnx": 1, "odd/blob.bin": 1}
    del store.objects["odd/blob.bin"]
    assert cli.main(["import", source, str(tmp_path / "others")]) == 1
    assert f"weights in '{store.address}/odd/blob.bin'" in capsys.readouterr().err


def test_an_object_called_model_has_the_name_of_its_folder(
    store: ObjectStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store.put("raw/net/1/double.py", DOUBLE)
    store.put("raw/net/1/model.onnx", graphs.save_identity(tmp_path / "identity.onnx").read_bytes())
    source = f"{store.address}/raw/net/1/model.onnx"
    assert cli.main(["import", source, str(tmp_path / "models")]) == 0, capsys.readouterr().err
    assert [path.name for path in (tmp_path / "models/net/1").iterdir()] == ["model.onnx"]


def test_a_refusal_names_the_object(
    store: ObjectStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["import", f"{store.address}/raw/broken.pt", str(tmp_path / "models")]) == 1
    said = capsys.readouterr().err
    assert f"'{store.address}/raw/broken.pt' does not say how it is served" in said
    assert f"into '{store.address}/raw/broken.pbtxt'" in said


def test_an_object_that_is_not_there_is_named(
    store: ObjectStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["import", f"{store.address}/raw/typo.onnx", str(tmp_path / "models")]) == 1
    assert f"there is no model at '{store.address}/raw/typo.onnx'" in capsys.readouterr().err


def test_a_python_file_of_a_bucket_is_imported_with_its_class(
    store: ObjectStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store.put("raw/double.py", DOUBLE)
    source = f"{store.address}/raw/double.py:Double"
    assert cli.main(["import", source, str(tmp_path / "models")]) == 0, capsys.readouterr().err
    assert read_pbtxt(tmp_path / "models/double/config.pbtxt").backend == "python"


def test_an_object_is_pulled(
    store: ObjectStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["pull", f"{store.address}/raw/plus.onnx"]) == 0
    assert "raw/plus.onnx: " in capsys.readouterr().out
    assert store.gets["raw/plus.data"] == 1


@pytest.mark.slow
def test_a_store_that_refuses_ends_the_start_with_a_line(
    store: ObjectStore, tmp_path: Path
) -> None:
    store.refusals = [(403, "AccessDenied")] * 20
    log = tmp_path / "log"
    process = start(None, log, f"{store.address}/raw/plus.onnx")
    assert process.wait(60) == 1
    assert "AccessDenied" in log.read_text()
    assert "Traceback" not in log.read_text()
