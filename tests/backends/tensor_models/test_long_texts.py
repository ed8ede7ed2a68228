"""Long texts: cut to the tokens of the whole, or refused; none of them holds others."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from tokenizers import Tokenizer as Inner
from tokenizers import models, normalizers, pre_tokenizers, processors

from backends.tensor_models import graphs
from harness.examples import examples
from penstock.core.errors import ConfigError, InvalidRequestError
from penstock.core.request import InferenceRequest
from penstock.core.tensor import Tensor
from penstock_backends.onnxruntime import OnnxRuntimeBackend
from penstock_backends.tensor_models.long_texts import LongTexts, Tokens
from penstock_backends.tensor_models.tokenizer import Tokenizer

Open = Callable[..., Awaitable[OnnxRuntimeBackend]]
KEPT = 20
_PIECES = ["red", "blue", "##d", "##e", "r", "b", "##r", "##b", ".", "é", "漢", "[UNK]"]


def _inner(direction: str = "right") -> Any:
    """A tokenizer as BERT's, of a few pieces."""
    ids = {piece: at for at, piece in enumerate(["[PAD]", "[CLS]", "[SEP]", *_PIECES])}
    inner = Inner(models.WordPiece(ids, unk_token="[UNK]", max_input_chars_per_word=100))
    inner.normalizer = normalizers.BertNormalizer()
    inner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    inner.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    inner.enable_truncation(KEPT, direction=direction)
    return inner


def _bounded(inner: Any, **parameters: str) -> Tokenizer:
    return Tokenizer(inner, graphs.text_config(parameters=graphs.parameters(**parameters)))


_WORDS = st.sampled_from(
    ["red ", "blue", ".", "r" * 90, "b" * 150, " " * 40, "e\u0301", "漢", "\0", "\n", "rb" * 40]
)
_LONG = st.lists(st.tuples(_WORDS, st.integers(1, 60)), min_size=5, max_size=40).map(
    lambda parts: "".join(word * count for word, count in parts)
)


@pytest.mark.parametrize("direction", ["right", "left"])
@given(text=_LONG)
@settings(max_examples=examples(60), deadline=None)
def test_a_long_text_has_the_tokens_of_the_whole(direction: str, text: str) -> None:
    tokenizer = _bounded(_inner(direction), penstock__max_text_characters="10000000")
    (made,) = tokenizer.encode(tokenizer.texts.read([text]))
    assert made.ids == _inner(direction).encode(text).ids


def test_eight_million_characters_cost_what_the_first_thousands_do() -> None:
    seen: list[int] = []

    class Counting:
        truncation = _inner().truncation

        def encode_batch_fast(self, texts: list[str]) -> Any:
            seen.extend(map(len, texts))
            return _inner().encode_batch_fast(texts)

    (made,) = LongTexts(graphs.text_config(), Counting()).read(["red blue " * 900_000])
    assert isinstance(made, Tokens)
    assert sum(seen) < 2000


@pytest.fixture
def files(version: Path) -> Path:
    graphs.save_encoder(version / "model.onnx")
    graphs.save_tokenizer(version / "tokenizer.json", longest=6)
    return version


def _request(*texts: str) -> InferenceRequest:
    return graphs.request(TEXT=Tensor.from_strings(texts, (len(texts), 1)))


async def test_a_text_without_words_is_refused_and_harms_nobody_in_its_batch(
    open_backend: Open, files: Path
) -> None:
    backend = await open_backend(graphs.text_config())
    good, bad = await backend.execute([_request("red"), _request(" " * 8_000_000)])
    (alone,) = await backend.execute([_request("red")])
    assert isinstance(bad, InvalidRequestError)
    assert "has fewer tokens than the model reads" in bad.message
    assert_allclose(
        graphs.tensor(good, "EMBEDDING").numpy(), graphs.tensor(alone, "EMBEDDING").numpy()
    )


async def test_the_texts_of_a_request_share_what_is_tokenized_of_them(
    open_backend: Open, files: Path
) -> None:
    backend = await open_backend(graphs.text_config())
    one, eight = await backend.execute(
        [_request(" " * 9000 + "red"), _request(*[" " * 9000 + "red"] * 8)]
    )
    assert graphs.tensor(one, "EMBEDDING").shape == (1, 8)
    assert isinstance(eight, InvalidRequestError)


async def test_a_parameter_lets_longer_texts_be_tokenized(open_backend: Open, files: Path) -> None:
    given = graphs.parameters(penstock__max_text_characters="100000")
    backend = await open_backend(graphs.text_config(parameters=given))
    spaces, red = await backend.execute([_request(" " * 50_000 + "red"), _request("red")])
    assert_allclose(
        graphs.tensor(spaces, "EMBEDDING").numpy(), graphs.tensor(red, "EMBEDDING").numpy()
    )


async def test_without_truncation_a_text_of_66_thousand_characters_is_refused(
    open_backend: Open, version: Path
) -> None:
    graphs.save_encoder(version / "model.onnx")
    graphs.save_tokenizer(version / "tokenizer.json")
    backend = await open_backend(graphs.text_config())
    long, longer = await backend.execute([_request("red " * 16_500), _request("é" * 300_000)])
    assert isinstance(long, InvalidRequestError)
    assert "66000 characters is too long: the model takes 65536 characters" in long.message
    assert isinstance(longer, InvalidRequestError)


def test_more_texts_than_a_request_may_have_are_refused() -> None:
    bounds = LongTexts(graphs.text_config(), _inner())
    with pytest.raises(InvalidRequestError, match=r"4097 texts.*'penstock\.max_texts'"):
        bounds.check_count(4097)


def test_a_character_at_the_cut_of_bytes_is_left_out() -> None:
    bounds = LongTexts(graphs.text_config(), _inner())
    assert bounds.decoded("é".encode() * 100_000 + b"x").strip("é") == ""


@pytest.mark.parametrize("name", ["max_texts", "max_text_characters"])
def test_bounds_must_be_positive(name: str) -> None:
    config = graphs.text_config(parameters=graphs.parameters(**{f"penstock__{name}": "0"}))
    with pytest.raises(ConfigError, match=f"penstock.{name}"):
        OnnxRuntimeBackend.check_config(config)
