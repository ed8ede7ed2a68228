"""A small image classifier: says which of nine colours an image has on the whole.

It stands where Triton's examples have DenseNet and Inception, with their names and tensors. Pixels
are scaled from -1 to 1, as the examples' option `-s INCEPTION` does it.
"""

from pathlib import Path

from penstock.demo.onnx_graph import OnnxGraphBuilder

COLOURS = {
    "BLACK": (-1, -1, -1),
    "GREY": (0, 0, 0),
    "WHITE": (1, 1, 1),
    "RED": (1, -1, -1),
    "YELLOW": (1, 1, -1),
    "GREEN": (-1, 1, -1),
    "CYAN": (-1, 1, 1),
    "BLUE": (-1, -1, 1),
    "MAGENTA": (1, -1, 1),
}

_SHARPNESS = 4.0


def add_densenet(version: Path) -> None:
    """Scores, as the model of that name gives them: the higher the nearer."""
    graph = OnnxGraphBuilder("densenet_onnx")
    image = graph.input("data_0", "float32", ("batch", 3, 224, 224))
    shape = ("batch", len(COLOURS), 1, 1)
    scores = _scores(graph, image, pixel_axes=(2, 3))
    columns = graph.op("Unsqueeze", scores, _axes(graph, 2, 3))
    graph.output("fc6_1", columns, "float32", shape)
    _save(graph, version, "densenet_labels.txt")


def add_inception(version: Path) -> None:
    """Probabilities, as the model of that name gives them."""
    graph = OnnxGraphBuilder("inception_onnx")
    image = graph.input("input", "float32", ("batch", 299, 299, 3))
    probabilities = graph.op("Softmax", _scores(graph, image, pixel_axes=(1, 2)), axis=-1)
    name = "InceptionV3/Predictions/Softmax"
    graph.output(name, probabilities, "float32", ("batch", len(COLOURS)))
    _save(graph, version, "inception_labels.txt")


def _scores(graph: OnnxGraphBuilder, image: str, *, pixel_axes: tuple[int, int]) -> str:
    """Minus the squared distance of the mean colour to each of ours, but for a part common to all.

    |m - c|^2 = |m|^2 - 2 m.c + |c|^2, of which |m|^2 is the same for every colour c.
    """
    import numpy as np

    colours = np.array(list(COLOURS.values()), np.float32)
    mean = graph.op("ReduceMean", image, _axes(graph, *pixel_axes), keepdims=0)
    weights = graph.weight(2 * _SHARPNESS * colours.T)
    bias = graph.weight(-_SHARPNESS * (colours**2).sum(axis=1))
    return graph.op("Add", graph.op("MatMul", mean, weights), bias)


def _axes(graph: OnnxGraphBuilder, *axes: int) -> str:
    import numpy as np

    return graph.weight(np.array(axes, np.int64))


def _save(graph: OnnxGraphBuilder, version: Path, labels: str) -> None:
    """Write the model, and beside its versions the file that names its classes."""
    graph.save(version / "model.onnx")
    (version.parent / labels).write_text("".join(f"{name}\n" for name in COLOURS))
