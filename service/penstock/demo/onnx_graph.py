"""A builder of ONNX graphs: nodes and weights, saved as an ONNX file."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import onnx

_OPSET = 20
_IR_VERSION = 10


class OnnxGraphBuilder:
    """Builds a graph; each operation returns the name of its result, an input of later ones."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._nodes: list[onnx.NodeProto] = []
        self._weights: list[onnx.TensorProto] = []
        self._inputs: list[onnx.ValueInfoProto] = []
        self._outputs: list[onnx.ValueInfoProto] = []

    def input(self, name: str, dtype: str, shape: Sequence[int | str]) -> str:
        self._inputs.append(_tensor_info(name, dtype, shape))
        return name

    def output(self, name: str, value: str, dtype: str, shape: Sequence[int | str]) -> None:
        self._add("Identity", (value,), (name,))
        self._outputs.append(_tensor_info(name, dtype, shape))

    def weight(self, array: "np.ndarray") -> str:
        from onnx import numpy_helper

        name = f"w{len(self._weights)}"
        self._weights.append(numpy_helper.from_array(array, name))
        return name

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        return self.split(kind, *inputs, parts=1, **attributes)[0]

    def split(self, kind: str, *inputs: str, parts: int, **attributes: Any) -> list[str]:
        """An operation with several results."""
        results = [f"t{len(self._nodes)}_{part}" for part in range(parts)]
        self._add(kind, inputs, results, **attributes)
        return results

    def cast(self, value: str, dtype: str) -> str:
        return self.op("Cast", value, to=_element_type(dtype))

    def save(self, path: Path) -> None:
        from onnx import helper

        graph = helper.make_graph(
            self._nodes, self._name, self._inputs, self._outputs, self._weights
        )
        model = helper.make_model(
            graph,
            producer_name="penstock",
            ir_version=_IR_VERSION,
            opset_imports=[helper.make_opsetid("", _OPSET)],
        )
        path.write_bytes(model.SerializeToString(deterministic=True))

    def _add(
        self, kind: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any
    ) -> None:
        from onnx import helper

        self._nodes.append(helper.make_node(kind, inputs, outputs, **attributes))


def _tensor_info(name: str, dtype: str, shape: Sequence[int | str]) -> "onnx.ValueInfoProto":
    from onnx import helper

    return helper.make_tensor_value_info(name, _element_type(dtype), shape)


def _element_type(dtype: str) -> int:
    """ONNX's number for a datatype of numpy; `object` stands for texts."""
    import numpy as np
    from onnx import helper

    return helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
