"""Tiny models in OpenVINO's format and in TensorFlow's, with their configurations."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from backends.tensor_models.graphs import tensor_in, tensor_out
from penstock.core.config import ModelConfig
from penstock.core.tensor import DataType


def save_double(
    path: Path, shape: Sequence[int] = (-1, 2), kind: str = "f32", layout: str = ""
) -> Path:
    """A model whose `y` is twice `x`."""
    import openvino
    from openvino import opset13 as ops

    x = ops.parameter(list(shape), getattr(openvino.Type, kind), name="x")
    x.output(0).set_names({"x"})
    y = ops.add(x, x)
    y.output(0).set_names({"y"})
    result = ops.result(y)
    if layout:
        x.set_layout(openvino.Layout(layout))
        result.set_layout(openvino.Layout(layout))
    path.parent.mkdir(parents=True, exist_ok=True)
    openvino.serialize(openvino.Model([result], [x], "double"), str(path))
    return path


def save_rows(path: Path) -> Path:
    """A model that only takes four rows: it reshapes to as many."""
    import numpy as np
    import openvino
    from openvino import opset13 as ops

    x = ops.parameter([4, 2], openvino.Type.f32, name="x")
    x.output(0).set_names({"x"})
    y = ops.add(ops.reshape(x, ops.constant(np.array([4, 2])), False), x)
    y.output(0).set_names({"y"})
    openvino.serialize(openvino.Model([ops.result(y)], [x], "rows"), str(path))
    return path


def save_product(path: Path, shape: Sequence[int] | None = (-1, 2)) -> Path:
    """A model whose `y` is `x` times a matrix of two rows; `x` has any rank without a shape."""
    import numpy as np
    import openvino
    from openvino import opset13 as ops

    dims = openvino.PartialShape.dynamic() if shape is None else list(shape)
    x = ops.parameter(dims, openvino.Type.f32, name="x")
    x.output(0).set_names({"x"})
    y = ops.matmul(x, ops.constant(np.ones((2, 2), np.float32)), False, False)
    y.output(0).set_names({"y"})
    openvino.serialize(openvino.Model([ops.result(y)], [x], "product"), str(path))
    return path


def save_mirrored(path: Path) -> Path:
    """A model whose `y` is twice `x`, with the last columns mirrored: `x` needs four or more."""
    import numpy as np
    import openvino
    from openvino import opset13 as ops

    x = ops.parameter([-1, -1], openvino.Type.f32, name="x")
    x.output(0).set_names({"x"})
    none, three = ops.constant(np.array([0, 0])), ops.constant(np.array([0, 3]))
    y = ops.pad(ops.add(x, x), none, three, "reflect")
    y.output(0).set_names({"y"})
    openvino.serialize(openvino.Model([ops.result(y)], [x], "mirrored"), str(path))
    return path


def save_shaped(path: Path) -> Path:
    """A model whose `y` is `x` in the shape that `dims` says."""
    import openvino
    from openvino import opset13 as ops

    x = ops.parameter([-1, 2], openvino.Type.f32, name="x")
    dims = ops.parameter([2], openvino.Type.i64, name="dims")
    for tensor in (x, dims):
        tensor.output(0).set_names({tensor.friendly_name})
    y = ops.reshape(x, dims, False)
    y.output(0).set_names({"y"})
    openvino.serialize(openvino.Model([ops.result(y)], [x, dims], "shaped"), str(path))
    return path


def config(
    datatype: DataType = DataType.FP32, *dims: int, max_batch_size: int = 8, **fields: Any
) -> ModelConfig:
    """The configuration of `save_double`."""
    return ModelConfig(
        name="double",
        backend="openvino",
        max_batch_size=max_batch_size,
        input=(tensor_in("x", datatype, *(dims or (2,))),),
        output=(tensor_out("y", datatype, *(dims or (2,))),),
        **fields,
    )


def save_graphdef(path: Path, operator: str = "Add", kind: str = "DT_FLOAT") -> Path:
    """A frozen GraphDef, as text, whose `y` is the operator of `x`; `Add` doubles."""
    path.parent.mkdir(parents=True, exist_ok=True)
    shape = "shape { dim { size: -1 } dim { size: 2 } }"
    second = 'input: "x"' if operator == "Add" else ""
    typed = f'attr {{ key: "T" value {{ type: {kind} }} }}' if operator == "Add" else ""
    path.write_text(
        f'node {{ name: "x" op: "Placeholder" attr {{ key: "dtype" value {{ type: {kind} }} }}'
        f' attr {{ key: "shape" value {{ {shape} }} }} }}\n'
        f'node {{ name: "y" op: "{operator}" input: "x" {second} {typed} }}\n'
    )
    return path
