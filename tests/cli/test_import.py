"""`penstock import`: a model becomes an entry of a repository."""

from __future__ import annotations

import os
import pickle
from importlib.util import find_spec
from pathlib import Path

import pytest

from backends.tensor_models import graphs
from harness.object_store import object_store
from penstock import cli
from penstock.models.config.pbtxt import read_pbtxt


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A graph with its weights in a file of their own, among other files."""
    folder = tmp_path / "author"
    folder.mkdir()
    graphs.save_external(folder / "plus.onnx", "plus.onnx_data")
    (folder / "unrelated.bin").write_bytes(b"x")
    return folder / "plus.onnx"


def _refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert cli.main(["import", *arguments]) == 1
    return capsys.readouterr().err


@pytest.mark.contract("SD-02")
def test_the_entry_has_the_model_and_a_complete_configuration(model: Path, tmp_path: Path) -> None:
    assert cli.main(["import", str(model), str(tmp_path / "models"), "--batching=16"]) == 0
    entry = tmp_path / "models" / "plus"
    inside = {path.relative_to(entry).as_posix() for path in entry.rglob("*") if path.is_file()}
    assert inside == {"config.pbtxt", "1/plus.onnx", "1/plus.onnx_data"}
    config = read_pbtxt(entry / "config.pbtxt")
    assert (config.backend, config.max_batch_size) == ("onnxruntime", 16)
    assert config.dynamic_batching is not None
    text = (entry / "config.pbtxt").read_text()
    assert "# which reads .onnx\n" in text
    if find_spec("onnxruntime"):
        assert [tensor.name for tensor in config.input] == ["x"]
        assert "# as the engine has it\ninput" in text


def test_weights_come_with_their_graph_whatever_they_are_called(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    graphs.save_external(tmp_path / "net.onnx", "blob.bin")
    assert cli.main(["import", str(tmp_path / "net.onnx"), str(tmp_path / "models")]) == 0
    version = tmp_path / "models" / "net" / "1"
    assert {path.name for path in version.iterdir()} == {"net.onnx", "blob.bin"}
    (tmp_path / "blob.bin").unlink()
    text = _refusal(capsys, str(tmp_path / "net.onnx"), str(tmp_path / "other"))
    assert f"has its weights in '{tmp_path}/blob.bin', which is not there" in text


def test_each_completed_value_has_its_reason(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    graphs.save_identity(tmp_path / "net.onnx")
    (tmp_path / "net.pbtxt").write_text("dynamic_batching { }\n")
    assert cli.main(["import", str(tmp_path / "net.onnx"), str(tmp_path / "models")]) == 0
    entry = tmp_path / "models" / "net"
    text = (entry / "config.pbtxt").read_text()
    assert "the server's default\nmax_batch_size: 4" in text
    assert not (entry / "1" / "net.pbtxt").exists()  # what it says stands in the entry's own


def test_nothing_is_overwritten(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    models = str(tmp_path / "models")
    assert cli.main(["import", str(model), models]) == 0
    config = tmp_path / "models" / "plus" / "config.pbtxt"
    config.write_text(own := config.read_text() + "# my own\n")
    assert "is there already" in _refusal(capsys, str(model), models)
    assert cli.main(["import", str(model), models, "--version=2"]) == 0
    assert (tmp_path / "models" / "plus" / "2" / "plus.onnx").is_file()
    assert config.read_text() == own
    assert [path.name for path in Path(models).iterdir()] == ["plus"]


def test_a_further_version_has_the_name_of_the_first(tmp_path: Path) -> None:
    graphs.save_identity(tmp_path / "one.onnx")
    (tmp_path / "two.onnx").write_bytes((tmp_path / "one.onnx").read_bytes())
    models = tmp_path / "models"
    assert cli.main(["import", str(tmp_path / "one.onnx"), str(models)]) == 0
    later = [str(tmp_path / "two.onnx"), str(models), "--name=one", "--version=2"]
    assert cli.main(["import", *later]) == 0
    assert [path.name for path in (models / "one" / "2").iterdir()] == ["one.onnx"]


def test_large_files_may_be_linked(model: Path, tmp_path: Path) -> None:
    assert cli.main(["import", str(model), str(tmp_path / "m"), "--link", "--name=other"]) == 0
    linked = tmp_path / "m" / "other" / "1" / "plus.onnx"
    assert linked.is_symlink()
    assert linked.resolve() == model.resolve()


@pytest.mark.skipif(not find_spec("onnxruntime"), reason="onnxruntime is not installed")
def test_what_would_not_load_is_not_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "broken.onnx").write_bytes(b"not a graph")
    text = _refusal(capsys, str(tmp_path / "broken.onnx"), str(tmp_path / "models"))
    assert "'broken' would not load" in text
    assert not list((tmp_path / "models").iterdir())


def test_a_pickle_is_not_written_either(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Which is known without PyTorch, as `penstock check` knows it."""
    (tmp_path / "broken.pt").write_bytes(pickle.dumps(Path("x")))
    tensors = 'input [ { name: "x" data_type: TYPE_FP32 dims: [ 1 ] } ]'
    (tmp_path / "broken.pbtxt").write_text(f"{tensors} {tensors.replace('input', 'output')}")
    text = _refusal(capsys, str(tmp_path / "broken.pt"), str(tmp_path / "models"))
    assert "'broken' would not load" in text
    assert "--allow-unsafe-models=true" in text
    assert not list((tmp_path / "models").iterdir())


def test_a_python_model_comes_without_its_neighbours(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text("from penstock.model import Model\nclass M(Model): ...\n")
    (tmp_path / "neighbour.py").touch()
    assert cli.main(["import", str(tmp_path / "model.py"), str(tmp_path / "models")]) == 0
    assert [p.name for p in (tmp_path / "models" / "m" / "1").iterdir()] == ["model.py"]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["models"], "is a repository of models, not a model"),
        (["none.onnx"], "there is no file"),
        (["none.onx"], "There is no such file or folder."),
        ([""], "the name of a model is empty"),
        (["s3://bucket"], "there is no model at 's3://bucket': no folder"),
        (["s3://bucket/m", "--link"], "it is copied"),
        (["s3a://bucket/models"], "did you mean 's3://bucket/models'?"),
        (["as://box"], "is no address: as://ACCOUNT"),
    ],
)
def test_what_is_no_model_is_refused(
    arguments: list[str],
    text: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models" / "a" / "1").mkdir(parents=True)
    assert text in _refusal(capsys, arguments[0], "out", *arguments[1:])


@pytest.mark.parametrize("option", ["--batching=0", "--version=x", "--device=tpu", "--task=sing"])
def test_an_option_that_is_wrong_ends_the_command(
    option: str, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["import", str(model), str(tmp_path / "m"), option])
    assert ended.value.code == 2
    assert option.partition("=")[0] in capsys.readouterr().err


def test_a_model_in_a_bucket_is_fetched(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    with object_store() as store:
        store.put("raw/sums/plus.onnx", model.read_bytes())
        store.put("raw/sums/plus.onnx_data", model.with_suffix(".onnx_data").read_bytes())
        source = f"{store.address}/raw/sums"
        assert cli.main(["import", source, str(tmp_path / "models")]) == 0
        assert "no folder, and no file of an engine" in _refusal(
            capsys, f"{store.address}/raw/none", "out"
        )
        store.put("models/m/config.pbtxt", "")
        entry = f"{store.address}/models/m"
        told = f"'{entry}' is a model in a repository: serve it with penstock serve {entry[:-2]} --"
        assert told in _refusal(capsys, entry, "out")
    files = [path for path in (tmp_path / "models" / "sums").rglob("*") if path.is_file()]
    assert {path.name for path in files} == {"config.pbtxt", "plus.onnx", "plus.onnx_data"}
    assert not any(path.is_symlink() for path in files)


@pytest.mark.parametrize("option", ["--batching", "--instances", "--version"])
@pytest.mark.parametrize("value", ["0", "-1", "x", "1.5", "٣"])
def test_numbers_are_from_1_on(option: str, value: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["import", "a", "b", f"{option}={value}"])
    assert ended.value.code == 2
    assert f"{option}: a number from 1 on, not '{value}'" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--batching", "--instances", "--version"])
@pytest.mark.parametrize("value", ["2147483648", "9" * 5000])
def test_numbers_are_those_of_a_configuration(
    option: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["import", "a", "b", f"{option}={value}"])
    assert ended.value.code == 2
    assert f"{option}: a number up to 2147483647, not '{value}'" in capsys.readouterr().err


@pytest.mark.parametrize("repository", ["", "s3://bucket/models"])
def test_a_repository_is_a_folder_of_this_machine(
    repository: str, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        cli.main(["import", str(model), repository])
    assert ended.value.code == 2
    assert [path.name for path in tmp_path.iterdir()] == ["author"]


@pytest.mark.parametrize("name", [b"new\nline.onnx", b"latin\xe9.onnx"])
def test_a_file_is_called_as_a_configuration_can_say(
    name: bytes, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    strange = os.fsdecode(os.fsencode(model.parent / "x")[:-1] + name)
    model.rename(strange)
    assert "cannot be called so in a model" in _refusal(capsys, strange, str(tmp_path / "models"))
    assert not (tmp_path / "models").exists()


def test_the_line_that_serves_it_is_quoted(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["import", str(model), str(tmp_path / "my models")]) == 0
    assert f"penstock serve '{tmp_path}/my models'\n" in capsys.readouterr().out
