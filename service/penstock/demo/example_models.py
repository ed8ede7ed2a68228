"""The small models of Triton's examples: sums of numbers, of texts, and along sequences."""

from pathlib import Path

from penstock.demo.onnx_graph import OnnxGraphBuilder

_VECTOR = ("batch", 16)
_NUMBER = ("batch", 1)
_INPUTS = ("INPUT0", "INPUT1")


def add_int8(version: Path) -> None:
    _add_converted(version, "int8")


def add_string(version: Path) -> None:
    """Texts of whole numbers, which ONNX Runtime reads and writes as C does."""
    _add_converted(version, "object")


def _add_converted(version: Path, dtype: str) -> None:
    """A sum and a difference in INT32, since ONNX Runtime adds neither texts nor bytes."""
    graph = OnnxGraphBuilder("simple")
    values = [graph.cast(graph.input(name, dtype, _VECTOR), "int32") for name in _INPUTS]
    for name, operation in (("OUTPUT0", "Add"), ("OUTPUT1", "Sub")):
        result = graph.cast(graph.op(operation, *values), dtype)
        graph.output(name, result, dtype, _VECTOR)
    graph.save(version / "model.onnx")


def add_sequence(version: Path) -> None:
    """INPUT, and one more in the first request of a sequence; zero for a row without a request."""
    graph = OnnxGraphBuilder("simple_sequence")
    value, start, ready = (graph.input(n, "int32", _NUMBER) for n in ("INPUT", "START", "READY"))
    result = graph.op("Mul", graph.op("Add", value, start), ready)
    graph.output("OUTPUT", result, "int32", _NUMBER)
    graph.save(version / "model.onnx")


def add_dyna_sequence(version: Path) -> None:
    """The sums of `simple_sequence`, with the correlation id in the last request of a sequence."""
    graph = OnnxGraphBuilder("simple_dyna_sequence")
    value, start, end, ready = (
        graph.input(name, "int32", _NUMBER) for name in ("INPUT", "START", "END", "READY")
    )
    id_number = graph.cast(graph.input("CORRID", "uint64", _NUMBER), "int32")
    total = graph.op("Add", graph.op("Add", value, start), graph.op("Mul", end, id_number))
    graph.output("OUTPUT", graph.op("Mul", total, ready), "int32", _NUMBER)
    graph.save(version / "model.onnx")


def add_nothing(version: Path) -> None:
    """Add nothing: the template is all there is of this model."""
