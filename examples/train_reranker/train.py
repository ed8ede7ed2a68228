"""Trains the demo's reranker: python train.py OUTPUT

Needs the environment of the demo, and no PyTorch: MiniLM stays as it is, the graph makes two
likenesses of a query and a passage, and found here is how much each counts, and how rare each token
is. Answers are in two halves: with the questions of one it is trained, with those of the other it
is asked.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from pairs import Pair, paragraphs, written_pairs
from safetensors.numpy import save_file
from tokenizers import Tokenizer

from penstock.demo.sentence_encoder import (
    BertGraph,
    add_encoder,
    add_tokenizer,
    published_weights,
)

Array = np.ndarray[Any, Any]

_NEAR = 10
"""The answers that are put in order, those nearest to the question."""
_SPECIAL = 1000
"""Below this number there are special tokens and signs, all but letters and digits."""


class Model:
    """A graph and its tokenizer, in a folder."""

    def __init__(self, folder: Path) -> None:
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.enable_padding()
        self._session = onnxruntime.InferenceSession(str(folder / "model.onnx"))
        self._names = [one.name for one in self._session.get_inputs()]

    def __call__(self, texts: list[Any]) -> Array:
        order = sorted(range(len(texts)), key=lambda at: len("".join(texts[at])))
        parts = [
            self._run([texts[at] for at in order[i : i + 32]]) for i in range(0, len(order), 32)
        ]
        return np.concatenate(parts)[np.argsort(order)]

    def _run(self, texts: list[Any]) -> Array:
        made = self._tokenizer.encode_batch(texts)
        known = {
            "input_ids": [one.ids for one in made],
            "attention_mask": [one.attention_mask for one in made],
            "token_type_ids": [one.type_ids for one in made],
        }
        feeds = {name: np.array(known[name], np.int64) for name in self._names}
        result: Array = self._session.run(None, feeds)[0]
        return result

    def rarity(self, texts: list[str], size: int) -> Array:
        """How rare each token is: the logarithm of passages over those that have it."""
        found = np.zeros(size)
        for one in self._tokenizer.encode_batch(texts, add_special_tokens=False):
            found[[*set(one.ids)]] += 1
        rarity = np.log((len(texts) + 1) / (found + 0.5)).clip(0)
        rarity[:_SPECIAL] = 0
        return rarity.astype(np.float16)


def write_likenesses(folder: Path, rarity: Array) -> None:
    """The graph of the reranker, up to its likenesses."""
    folder.mkdir()
    weights, config = published_weights()
    bert = BertGraph("likenesses", weights, config, two_texts=True)
    columns = bert.graph.op("Concat", *bert.likenesses(rarity.astype(np.float32)), axis=1)
    bert.graph.output("LIKENESSES", columns, "float32", ("batch", 2))
    bert.graph.save(folder / "model.onnx")
    add_tokenizer(folder, two_texts=True)


def fitted(likenesses: Array, right: Array, steps: int = 4000) -> tuple[Array, Array]:
    """The factors, none of which is below 0, and the offset; `right` has a 1 for a right answer."""
    factors, offset = np.array([8.0, 8.0]), -7.0
    for _ in range(steps):
        scores = likenesses @ factors + offset
        share = np.exp(scores - scores.max(1, keepdims=True))
        share /= share.sum(1, keepdims=True)
        each = 1 / (1 + np.exp(-scores))
        of_scores = (share - right) + (each - right) / 2
        change = np.einsum("qp,qpf->f", of_scores, likenesses) / len(likenesses)
        factors = (factors - 0.5 * change - 1e-4 * factors).clip(0)
        offset -= 0.5 * (each - right).mean()
    return factors.astype(np.float32), np.array([offset], np.float32)


def reciprocal_rank(scores: Array, right: Array) -> float:
    """The mean; of a question whose answer is not among those it is 0."""
    ranks = (scores[:, :, None] <= scores[:, None, :]).sum(2)
    return float((right / ranks).sum(1).mean())


def main(output: Path) -> None:
    texts = paragraphs()
    pairs = written_pairs()
    answers = [*dict.fromkeys(pair.passage for pair in pairs)]
    half = set(answers[::2])
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "minilm").mkdir()
        add_encoder(folder / "minilm")
        minilm = Model(folder / "minilm")
        vocabulary = len(published_weights()[0]["embeddings.word_embeddings.weight"])
        rarity = minilm.rarity(texts, vocabulary)
        write_likenesses(folder / "reranker", rarity)
        found, right = candidates(pairs, answers, minilm, Model(folder / "reranker"))
    trained = np.array([pair.passage in half for pair in pairs])
    there = trained & (right.sum(1) > 0)
    factors, offset = fitted(found[there], right[there])
    print("factors", factors, "offset", offset)
    for name, which in (("trained", trained), ("held out", ~trained)):
        before = reciprocal_rank(found[which][:, :, 0], right[which])
        after = reciprocal_rank(found[which] @ factors, right[which])
        print(f"{name}: {which.sum()} questions, MRR of minilm {before:.3f}, of ours {after:.3f}")
    save_file({"rarity": rarity, "factors": factors, "offset": offset}, output)


def candidates(
    pairs: list[Pair], answers: list[str], minilm: Model, likeness: Model
) -> tuple[Array, Array]:
    """The likenesses of each question with the answers near it, and a 1 for the right ones."""
    queries = minilm([pair.query for pair in pairs])
    near = np.argsort(-(queries @ minilm(answers).T), axis=1)[:, :_NEAR]
    texts = [[answers[place] for place in places] for places in near.tolist()]
    together = [*zip(pairs, texts, strict=True)]
    right = np.array([[text == pair.passage for text in some] for pair, some in together], float)
    asked = [(pair.query, text) for pair, some in together for text in some]
    return likeness(asked).reshape(len(pairs), _NEAR, 2), right


if __name__ == "__main__":
    main(Path(sys.argv[1]))
