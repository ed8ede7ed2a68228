"""Our graph of all-MiniLM-L6-v2 against the answers of the published model."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from penstock.demo.sentence_encoder import INSTALL, weights_installed

onnxruntime = pytest.importorskip("onnxruntime")
tokenizers = pytest.importorskip("tokenizers")
pytestmark = pytest.mark.skipif(not weights_installed(), reason=f"no weights: {INSTALL}")

Embed = Callable[[Sequence[str]], NDArray[np.float32]]

_REFERENCE = json.loads(Path(__file__).with_name("minilm_reference.json").read_text("utf-8"))
_SENTENCES = [entry["sentence"] for entry in _REFERENCE]
_EMBEDDINGS = np.array([entry["embedding"] for entry in _REFERENCE], np.float32)


@pytest.fixture(scope="module")
def embed(demo_repository: Path) -> Embed:
    version = demo_repository / "minilm" / "1"
    tokenizer = tokenizers.Tokenizer.from_file(str(version / "tokenizer.json"))
    session = onnxruntime.InferenceSession(
        str(version / "model.onnx"), providers=["CPUExecutionProvider"]
    )

    def run(sentences: Sequence[str]) -> NDArray[np.float32]:
        tokenizer.enable_padding()
        encoded = tokenizer.encode_batch(list(sentences))
        feeds = {
            "input_ids": np.array([each.ids for each in encoded]),
            "attention_mask": np.array([each.attention_mask for each in encoded]),
        }
        (embeddings,) = session.run(["EMBEDDING"], feeds)
        return np.asarray(embeddings, np.float32)

    return run


@pytest.mark.parametrize(("sentence", "expected"), list(zip(_SENTENCES, _EMBEDDINGS, strict=True)))
def test_a_sentence_has_the_published_embedding(
    embed: Embed, sentence: str, expected: NDArray[np.float32]
) -> None:
    assert embed([sentence])[0] @ expected > 0.9999


def test_padding_changes_nothing(embed: Embed) -> None:
    """In one batch the short sentences are padded to the longest."""
    np.testing.assert_allclose(embed(_SENTENCES), _EMBEDDINGS, atol=1e-5)


def test_embeddings_have_length_one(embed: Embed) -> None:
    np.testing.assert_allclose(np.linalg.norm(embed(_SENTENCES), axis=1), 1, rtol=1e-5)


def test_the_reranker_reads_each_text_as_if_it_were_alone(demo_repository: Path) -> None:
    """In a batch of pairs whose lengths differ, and by itself."""
    version = demo_repository / "reranker" / "1"
    tokenizer = tokenizers.Tokenizer.from_file(str(version / "tokenizer.json"))
    tokenizer.enable_padding()
    session = onnxruntime.InferenceSession(str(version / "model.onnx"))

    def scores(pairs: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
        made = tokenizer.encode_batch(list(pairs))
        feeds = {
            "input_ids": np.array([each.ids for each in made]),
            "attention_mask": np.array([each.attention_mask for each in made]),
            "token_type_ids": np.array([each.type_ids for each in made]),
        }
        (found,) = session.run(["SCORE"], feeds)
        return np.asarray(found, np.float32)[:, 0]

    query, *passages = _SENTENCES[:4]
    together = scores([(query, passage) for passage in [query, *passages]])
    alone = [scores([(query, passage)])[0] for passage in [query, *passages]]
    np.testing.assert_allclose(together, alone, atol=1e-5)
    assert together.argmax() == 0  # of the query itself
    assert together[0] > 0.99


def test_long_texts_are_cut_where_the_model_ends(demo_repository: Path) -> None:
    file = demo_repository / "minilm" / "1" / "tokenizer.json"
    tokenizer = tokenizers.Tokenizer.from_file(str(file))
    assert len(tokenizer.encode("word " * 1000).ids) == 256
    assert len(tokenizer.encode("word").ids) == 3  # and short ones are not padded
