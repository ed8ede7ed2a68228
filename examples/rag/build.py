"""Writes the repository of the pipeline: python -m examples.rag.build FOLDER

The encoder, the reranker and the language model are the demo's; the image tower is built here.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from penstock.demo import write_demo
from penstock.demo.language_model import CHECKPOINT
from penstock.demo.onnx_graph import OnnxGraphBuilder

HERE = Path(__file__).parent
_DEMO = ("minilm", "reranker", "tiny_llm")
_SIDE = 48
_LAYERS, _LAST = (0, 2, 4, 6), 9
"""The numbers of the tower's layers in the file of its weights."""


def write_repository(folder: Path) -> None:
    """Write all models into `folder`, which is new."""
    with tempfile.TemporaryDirectory() as demo:
        write_demo(Path(demo), report=lambda line: None)
        for name in _DEMO:
            shutil.copytree(Path(demo) / name, folder / name)
    shutil.copytree(HERE / "models", folder, dirs_exist_ok=True)
    shutil.copyfile(CHECKPOINT / "tokenizer.json", folder / "rag" / "tokenizer.json")
    _write_tower(folder / "picture" / "1" / "model.onnx")


def _write_tower(path: Path) -> None:
    """The graph of `train_tower.py`: pictures to vectors of length one."""
    from safetensors.numpy import load_file

    kept = load_file(HERE / "tower.safetensors")
    weights = {name: value.astype("float32") for name, value in kept.items()}
    graph = OnnxGraphBuilder("picture")
    seen = graph.input("pixels", "float32", ("batch", 3, _SIDE, _SIDE))
    for layer in _LAYERS:
        kernel, offset = (graph.weight(weights[f"{layer}.{part}"]) for part in ("weight", "bias"))
        seen = graph.op("Conv", seen, kernel, offset, strides=[2, 2], pads=[1, 1, 1, 1])
        seen = graph.op("Relu", seen)
    product = graph.op(
        "MatMul", graph.op("Flatten", seen), graph.weight(weights[f"{_LAST}.weight"].T)
    )
    vector = graph.op("Add", product, graph.weight(weights[f"{_LAST}.bias"]))
    vector = graph.op("LpNormalization", vector, axis=1, p=2)
    graph.output("EMBEDDING", vector, "float32", ("batch", 384))
    graph.save(path)


if __name__ == "__main__":
    write_repository(Path(sys.argv[1]))
