"""The demo's two small ONNX models, which show the protocol only."""

from pathlib import Path

from penstock.demo.onnx_graph import OnnxGraphBuilder


def add_simple(version: Path) -> None:
    graph = OnnxGraphBuilder("simple")
    shape = ("batch", 16)
    inputs = [graph.input(name, "int32", shape) for name in ("INPUT0", "INPUT1")]
    graph.output("OUTPUT0", graph.op("Add", *inputs), "int32", shape)
    graph.output("OUTPUT1", graph.op("Sub", *inputs), "int32", shape)
    graph.save(version / "model.onnx")


def add_identity(version: Path) -> None:
    graph = OnnxGraphBuilder("identity")
    shape = ("batch", "length")
    graph.output("OUTPUT0", graph.input("INPUT0", "float32", shape), "float32", shape)
    graph.save(version / "model.onnx")
