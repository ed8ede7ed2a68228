"""What forests, packages of `torch.export` and TorchScript say of themselves."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from backends.fil import forests
from penstock.core.config import ModelConfig
from penstock.core.tensor import DataType
from penstock.models.config.pbtxt import parse_pbtxt
from penstock.models.sources.draft import SourceError, Wishes
from penstock.models.sources.recognise import model_of

ROWS = np.random.default_rng(3).normal(size=(60, 5)).astype(np.float32)
FLOAT, LONG = 7, 5


def config_of(path: Path, wishes: Wishes | None = None) -> tuple[ModelConfig, str]:
    draft = model_of(str(path), wishes or Wishes())
    assert draft is not None
    text = draft.model_file(wishes or Wishes()).texts["config.pbtxt"]
    return parse_pbtxt(text.encode(), "config.pbtxt"), text


@pytest.mark.parametrize("kind", forests.KINDS)
@pytest.mark.parametrize("ending", [".ubj", ".txt"])
def test_the_objective_of_a_forest_says_whether_it_gives_classes(
    kind: str, ending: str, tmp_path: Path
) -> None:
    path = tmp_path / f"trees{ending}"
    (forests.xgboost if ending == ".ubj" else forests.lightgbm)(ROWS, kind, path)
    config, text = config_of(path)
    assert config.parameter("is_classifier") == ("false" if kind == "regression" else "true")
    assert "# objective " in text


@pytest.mark.parametrize("kind", forests.KINDS)
def test_a_checkpoint_of_treelite_has_its_task(kind: str, tmp_path: Path) -> None:
    treelite = pytest.importorskip("treelite", reason="treelite is not installed")
    forests.xgboost(ROWS, kind, tmp_path / "trees.ubj")
    loaded = treelite.frontend.load_xgboost_model(tmp_path / "trees.ubj", format_choice="ubjson")
    loaded.serialize(tmp_path / "trees.tl")
    config, _ = config_of(tmp_path / "trees.tl")
    assert config.parameter("is_classifier") == ("false" if kind == "regression" else "true")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.txt", b"tree\nobjective=custom\n"),
        ("a.ubj", b"{}"),
        ("a.tl", b"\3\0\0\0" + bytes(40)),
        ("b.tl", b"\4\0\0\0" + bytes(22) + b"\x63"),
        ("b.ubj", b"{objective{\x04nameSL\0\0\0\0\0\0\0\xffbinary}"),
    ],
)
def test_a_forest_that_does_not_say_it_is_asked_for(
    name: str, content: bytes, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(SourceError, match="does not say how it is served"):
        model_of(str(tmp_path / name), Wishes())


def test_what_the_owner_wrote_of_a_forest_goes_first(tmp_path: Path) -> None:
    forests.lightgbm(ROWS, "binary", tmp_path / "a.txt")
    (tmp_path / "a.pbtxt").write_text(
        'parameters { key: "is_classifier" value: { string_value: "false" } }'
    )
    config, text = config_of(tmp_path / "a.txt")
    assert config.parameter("is_classifier") == "false"
    assert "objective" not in text


def package(path: Path, tensors: dict[str, Any], given: list[str], **more: Any) -> Path:
    """A package of `torch.export` as PyTorch 2.15 wrote one, of which only this is read."""
    made = [name for name in tensors if name not in given]
    graph = {
        "tensor_values": {
            name: {"dtype": dtype, "sizes": [_size(each) for each in sizes]}
            for name, (dtype, sizes) in tensors.items()
        }
    }
    inputs = [{"parameter": {"arg": {"name": "p_l_weight"}, "parameter_name": "l.weight"}}]
    inputs += [{"user_input": {"arg": {"as_tensor": {"name": each}}}} for each in given]
    outputs = [{"user_output": {"arg": {"as_tensor": {"name": each}}}} for each in made]
    signature = {"input_specs": inputs, "output_specs": outputs}
    program = {"graph_module": {"graph": graph, "signature": signature, **more}}
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{path.stem}/models/model.json", json.dumps(program))
    return path


def _size(size: int) -> dict[str, Any]:
    return {"as_int": size} if size >= 0 else {"as_expr": {"expr_str": "Symbol('s0')"}}


TENSORS = {
    "x": (FLOAT, (-1, 4)),
    "mask": (LONG, (-1, 3)),
    "mul": (FLOAT, (-1, 3)),
    "sum_1": (LONG, (-1,)),
}


def test_the_tensors_of_a_package_are_its_own(tmp_path: Path) -> None:
    config, text = config_of(package(tmp_path / "net.pt2", TENSORS, ["x", "mask"]))
    assert [(each.name, each.dims) for each in config.input] == [("x", (-1, 4)), ("mask", (-1, 3))]
    assert [(each.name, each.data_type) for each in config.output] == [
        ("output__0", DataType.FP32),
        ("output__1", DataType.INT64),
    ]
    assert text.count("# the program's own\n") == 4


def test_batches_of_a_package_are_its_first_dimension(tmp_path: Path) -> None:
    path = package(tmp_path / "net.pt2", TENSORS, ["x", "mask"])
    config, text = config_of(path, Wishes(max_batch_size=8))
    assert config.max_batch_size == 8
    assert [each.dims for each in config.input] == [(4,), (3,)]
    assert 'name: "output__1" data_type: TYPE_INT64 dims: [ 1 ] reshape { shape: [ ] }' in text


def test_a_package_without_a_dimension_of_batches_takes_none(tmp_path: Path) -> None:
    path = package(tmp_path / "net.pt2", {"x": (FLOAT, (2, 4)), "y": (FLOAT, (2,))}, ["x"])
    with pytest.raises(SourceError, match=r"'net' takes no batches: .*dynamic_shapes"):
        model_of(str(path), Wishes(max_batch_size=8))


def test_results_of_a_dictionary_have_its_keys(tmp_path: Path) -> None:
    spec = [1, {"type": "builtins.dict", "context": '["mean", "total"]', "children_spec": []}]
    call = {"fqn": "", "signature": {"out_spec": json.dumps(spec)}}
    path = package(tmp_path / "net.pt2", TENSORS, ["x", "mask"], module_call_graph=[call])
    assert [each.name for each in config_of(path)[0].output] == ["mean__0", "total__1"]


def test_what_the_owner_wrote_of_a_package_goes_first(tmp_path: Path) -> None:
    path = package(tmp_path / "net.pt2", TENSORS, ["x", "mask"])
    path.with_suffix(".pbtxt").write_text(
        'output [ { name: "score__0" data_type: TYPE_FP32 dims: [ -1, 3 ] } ]'
    )
    config, _ = config_of(path)
    assert [each.name for each in config.output] == ["score__0"]
    assert [each.name for each in config.input] == ["x", "mask"]


@pytest.mark.parametrize(
    "tensors",
    [
        {"x": (99, (1,)), "y": (FLOAT, (1,))},
        {"x": ("seven", (1,)), "y": (FLOAT, (1,))},
        {"y": (FLOAT, (1,))},
    ],
)
def test_a_package_that_does_not_say_its_tensors_is_asked_for_them(
    tensors: dict[str, Any], tmp_path: Path
) -> None:
    path = package(tmp_path / "net.pt2", tensors, ["x"])
    with pytest.raises(SourceError, match=r"(?s)does not say how it is served.*input \["):
        model_of(str(path), Wishes())


def script(path: Path, arguments: str, results: str, module: str = "__torch__") -> Path:
    """TorchScript as PyTorch 2.13 wrote it, of which only this is read."""
    code = (
        "class Layer(Module):\n  __parameters__ = []\n"
        "  def forward(self: __torch__.Layer,\n    h: Tensor) -> Tensor:\n    return h\n"
        "class Net(Module):\n  __parameters__ = []\n"
        f"  def forward(self: {module}.Net{arguments}) -> {results}:\n    return x\n"
    )
    with zipfile.ZipFile(path, "w") as archive:
        head = b"\x80\2c" + f"{module}\nNet\n".encode()
        archive.writestr(f"{path.stem}/data.pkl", head + b"q\0)\x81}.")
        archive.writestr(f"{path.stem}/code/{module.replace('.', '/')}.py", code)
    return path


def asked_for(path: Path) -> str:
    with pytest.raises(SourceError, match="does not say how it is served") as refused:
        model_of(str(path), Wishes())
    return str(refused.value).partition("\n\n")[2]


def test_the_lines_to_paste_have_the_arguments_of_a_script(tmp_path: Path) -> None:
    """All of them, or the model would not load; what has a default needs none."""
    arguments = ",\n    left: Tensor,\n    texts: List[str],\n    rate: int=16000"
    path = script(tmp_path / "a.pt", arguments, "Tuple[Tensor, List[str]]", "__torch__.m.inner")
    path.with_suffix(".pbtxt").write_text(asked_for(path))
    config, _ = config_of(path)
    assert [(each.name, each.data_type) for each in config.input] == [
        ("left", DataType.FP32),
        ("texts", DataType.BYTES),
    ]
    assert [(each.name, each.data_type) for each in config.output] == [
        ("output__0", DataType.FP32),
        ("output__1", DataType.BYTES),
    ]


@pytest.mark.parametrize(
    ("arguments", "results"),
    [
        ("", "Tensor"),
        (",\n    x: Tensor,\n    rate: int", "Tensor"),
        (",\n    x: Dict[str, Tensor]", "Tensor"),
        (",\n    x: Tensor", "Dict[str, Tensor]"),
    ],
)
def test_a_script_of_other_than_tensors_gets_lines_of_an_example(
    arguments: str, results: str, tmp_path: Path
) -> None:
    assert 'input [ { name: "input__0" ' in asked_for(script(tmp_path / "a.pt", arguments, results))


def test_a_script_of_another_form_gets_lines_of_an_example(tmp_path: Path) -> None:
    path = tmp_path / "a.pt"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a/data.pkl", b"\x80\2ctorch.nn.modules.linear\nLinear\nq\0.")
    assert 'input [ { name: "input__0" ' in asked_for(path)
