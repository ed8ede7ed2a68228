"""Files of engines given on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.core.config import ModelConfig
from penstock.models.config.pbtxt import parse_pbtxt
from penstock.models.sources.draft import SourceError, Wishes
from penstock.models.sources.recognise import model_of, named
from penstock.settings import ModelFile, Task

_CLASSES = 'parameters { key: "is_classifier" value: { string_value: "true" } }'
_TENSORS = """
input [ { name: "x" data_type: TYPE_FP32 dims: [ 2 ] } ]
output [ { name: "y" data_type: TYPE_FP32 dims: [ 2 ] } ]
"""


_CONTENTS = {".ubj": b"{}", ".txt": b"tree\n", ".pt": b"\x80\2", ".pt2": b"PK\5\6" + bytes(18)}
"""What a file of an ending has at least, to be taken for one."""


def _file(path: Path, config: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(_CONTENTS.get(path.suffix, b""))
    if config:
        path.with_suffix(".pbtxt").write_text(config)
    return path


def _model_file(argument: str) -> ModelFile:
    name, source = named(argument)
    draft = model_of(source, Wishes(), name)
    assert draft is not None
    return draft.model_file(Wishes())


def _config(argument: Path) -> ModelConfig:
    return parse_pbtxt(_model_file(str(argument)).texts["config.pbtxt"].encode(), "config.pbtxt")


def _refusal(argument: Path) -> str:
    with pytest.raises(SourceError) as refused:
        model_of(str(argument), Wishes())
    return str(refused.value)


@pytest.mark.parametrize(
    ("file", "config", "backend", "platform"),
    [
        ("net.onnx", "", "onnxruntime", ""),
        ("net.xml", "", "openvino", ""),
        ("net.tflite", "", "openvino", ""),
        ("net.plan", "", "tensorrt", ""),
        ("net.ubj", _CLASSES, "fil", ""),
        ("net.txt", _CLASSES, "fil", ""),
        ("net.pt", _TENSORS, "pytorch", "pytorch_libtorch"),
        ("net.pt2", _TENSORS, "pytorch", "torch_aoti"),
    ],
)
def test_the_ending_chooses_the_engine(
    file: str, config: str, backend: str, platform: str, tmp_path: Path
) -> None:
    found = _config(_file(tmp_path / file, config))
    assert (found.backend, found.platform) == (backend, platform)
    assert found.default_model_filename == file


@pytest.mark.parametrize(("file", "kind"), [("a.ubj", "xgboost_ubj"), ("a.txt", "lightgbm")])
def test_the_ending_of_a_forest_is_its_format(file: str, kind: str, tmp_path: Path) -> None:
    found = _config(_file(tmp_path / file, _CLASSES))
    assert found.parameter("model_type") == kind
    assert found.parameter("is_classifier") == "true"


def test_a_savedmodel_is_a_folder(tmp_path: Path) -> None:
    _file(tmp_path / "half" / "saved_model.pb")
    found = _config(tmp_path / "half")
    assert (found.backend, found.platform) == ("tensorflow", "tensorflow_savedmodel")
    assert found.default_model_filename == "half"


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("resnet50-v1.5.onnx", "resnet50-v1.5"),
        ("my net (2).onnx", "my_net__2_"),
        ("resnet/model.onnx", "resnet"),
        ("resnet/3/model.onnx", "resnet"),
        ("half.savedmodel/saved_model.pb", "half"),
        ("half/1/model.savedmodel/saved_model.pb", "half"),
        ("half/00012/saved_model.pb", "half"),
    ],
)
def test_a_model_is_called_as_its_file_or_folder(file: str, name: str, tmp_path: Path) -> None:
    path = _file(tmp_path / file)
    argument = path.parent if path.name == "saved_model.pb" else path
    assert _model_file(str(argument)).name == name


@pytest.mark.parametrize(
    ("file", "backend"), [("model.xml", "openvino"), ("a.onnx", "onnxruntime")]
)
def test_a_folder_with_one_model_is_that_model(file: str, backend: str, tmp_path: Path) -> None:
    _file(tmp_path / "exported" / file)
    for beside in ("model.bin", "README.txt", ".cache"):
        (tmp_path / "exported" / beside).touch()
    assert _config(tmp_path / "exported").backend == backend


def test_a_folder_with_several_models_asks_for_one(tmp_path: Path) -> None:
    for name in ("a.onnx", "b.xml"):
        _file(tmp_path / "exported" / name)
    assert "has several models: a.onnx, b.xml; give one of them" in _refusal(tmp_path / "exported")


def test_files_beside_models_of_a_repository_are_none(tmp_path: Path) -> None:
    _file(tmp_path / "models" / "stray.onnx")
    _file(tmp_path / "models" / "m" / "1" / "model.onnx")
    assert model_of(str(tmp_path / "models"), Wishes()) is None
    (tmp_path / "empty").mkdir()
    assert model_of(str(tmp_path / "empty"), Wishes()) is None


def test_an_entry_of_a_repository_is_served_with_it(tmp_path: Path) -> None:
    _file(tmp_path / "models" / "m" / "1" / "model.onnx")
    (tmp_path / "models" / "m" / "config.pbtxt").touch()
    told = _refusal(tmp_path / "models" / "m")
    models = tmp_path / "models"
    assert f"penstock serve {models} --model-control-mode=explicit --load-model=m" in told


def test_a_model_may_be_given_a_name(tmp_path: Path) -> None:
    path = _file(tmp_path / "net.onnx")
    found = _model_file(f"other={path}")
    assert (found.name, found.links["1/net.onnx"]) == ("other", path)


def test_what_the_configuration_beside_it_says_goes_first(tmp_path: Path) -> None:
    lines = 'backend: "openvino" max_batch_size: 2 # as IR\n'
    found = _config(_file(tmp_path / "net.onnx", lines))
    assert (found.backend, found.max_batch_size) == ("openvino", 2)
    assert found.default_model_filename == "net.onnx"


@pytest.mark.parametrize("file", ["trees.ubj", "trees.txt", "net.pt", "net.pt2"])
def test_lines_that_are_missing_may_be_pasted(file: str, tmp_path: Path) -> None:
    path = _file(tmp_path / file)
    text, _, lines = _refusal(path).partition("\n\n")
    beside = path.with_suffix(".pbtxt")
    assert text.startswith(f"'{path}' does not say how it is served. Write these lines")
    assert text.endswith(f"into '{beside}':")
    beside.write_text(lines)
    assert _config(path).default_model_filename == file


@pytest.mark.parametrize(
    ("file", "content", "why"),
    [
        ("trees.ubj", b"", "is empty"),
        ("trees.tl", b"", "is empty"),
        ("net.pt", b"", "is empty"),
        ("README.txt", b"How to use it", "is not of the format that its ending says"),
        ("trees.ubj", b"tree", "is not of the format that its ending says"),
        ("net.pt2", b"hello", "is not of the format that its ending says"),
        ("trees.ubj", b"{L", "is cut off: its end is not there"),
        ("net.pt", b"PK\3\4net/", "is cut off: its end is not there"),
        ("net.pt2", b"PK\3\4net/", "is cut off: its end is not there"),
    ],
)
def test_a_damaged_file_is_not_asked_for_lines(
    file: str, content: bytes, why: str, tmp_path: Path
) -> None:
    (tmp_path / file).write_bytes(content)
    assert _refusal(tmp_path / file) == f"'{tmp_path / file}' {why}"


def test_a_file_that_cannot_be_read_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = _file(tmp_path / "net.pt")

    def refused(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refused)
    assert _refusal(path) == f"'{path}' cannot be read: Permission denied"


def test_only_the_lines_that_are_missing_are_shown(tmp_path: Path) -> None:
    text = _refusal(_file(tmp_path / "net.pt", _TENSORS.partition("output")[0]))
    assert "output [ {" in text
    assert "input [ {" not in text


def test_a_configuration_that_is_wrong_is_refused_with_its_line(tmp_path: Path) -> None:
    text = _refusal(_file(tmp_path / "net.onnx", "max_batch: 2"))
    assert f"{tmp_path / 'net.pbtxt'}" in text
    assert "max_batch" in text


def test_a_file_that_is_missing_is_refused(tmp_path: Path) -> None:
    assert _refusal(tmp_path / "net.onnx") == f"there is no file '{tmp_path}/net.onnx'"


@pytest.mark.parametrize("typed", ["s3:/bucket/m", "s3:bucket/m", "hf:/owner/name"])
def test_an_address_with_a_slash_too_few_is_told_as_it_was_meant(typed: str) -> None:
    with pytest.raises(SourceError) as refused:
        model_of(typed, Wishes())
    scheme, rest = typed.split(":")
    assert f"did you mean '{scheme}://{rest.lstrip('/')}'?" in str(refused.value)


def test_what_no_engine_reads_is_refused_with_what_may_be_given(tmp_path: Path) -> None:
    text = _refusal(_file(tmp_path / "net.bin"))
    assert text.startswith("Unexpected argument: ")
    assert ".onnx, .xml, .tflite, .pt, .pt2, .plan, .ubj, .txt" in text


@pytest.mark.parametrize(
    ("file", "task"),
    [("net.onnx", Task.EMBED), ("net.pt2", Task.CLASSIFY), ("a.txt", Task.RERANK)],
)
def test_a_task_that_a_file_does_not_take_is_refused_by_name(
    file: str, task: Task, tmp_path: Path
) -> None:
    path = _file(tmp_path / file, _CLASSES)
    with pytest.raises(SourceError, match=f"--task={task}: '{path}' takes none"):
        model_of(str(path), Wishes(task=task))


def test_a_task_of_a_python_file_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "double.py"
    path.write_text("from penstock.model import Model\nclass Double(Model): ...\n")
    with pytest.raises(SourceError, match=f"--task=classify: '{path}' takes none"):
        model_of(str(path), Wishes(task=Task.CLASSIFY))


def test_the_task_classify_is_that_of_a_forest(tmp_path: Path) -> None:
    wishes = Wishes(task=Task.CLASSIFY)
    draft = model_of(str(_file(tmp_path / "a.ubj")), wishes)
    assert draft is not None
    text = draft.model_file(wishes).texts["config.pbtxt"]
    assert (
        '# as --task says\nparameters { key: "is_classifier" value { string_value: "true"' in text
    )
