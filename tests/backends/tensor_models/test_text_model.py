"""Text encoders."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from onnx import TensorProto

from backends.tensor_models import graphs
from fakes.values import scoped
from harness.outcomes import raises_nothing
from penstock.core.config import ModelConfig
from penstock.core.errors import (
    BackendNotInstalledError,
    ConfigError,
    InvalidRequestError,
    ModelLoadError,
)
from penstock.core.request import InferenceRequest
from penstock.core.tensor import DataType, Tensor
from penstock.core.timeline import Trace
from penstock_backends.onnxruntime import OnnxRuntimeBackend

Open = Callable[..., Awaitable[OnnxRuntimeBackend]]
LONG = "red green blue " * 40
MIXED = ["red", "", LONG, "one two", "green nonsense", LONG + "three", "blue"]


def _request(*texts: str | bytes) -> InferenceRequest:
    return graphs.request(TEXT=Tensor.from_strings(texts, (len(texts), 1)))


async def _vectors(backend: OnnxRuntimeBackend, requests: Sequence[InferenceRequest]) -> list[Any]:
    outcomes = await backend.execute(requests)
    return [graphs.tensor(outcome, "EMBEDDING").numpy() for outcome in outcomes]


@pytest.fixture
def files(version: Path) -> Path:
    """An encoder and its tokenizer, in the directory of the version."""
    graphs.save_encoder(version / "model.onnx")
    graphs.save_tokenizer(version / "tokenizer.json")
    return version


async def test_texts_become_embeddings(open_backend: Open, files: Path) -> None:
    backend = await open_backend(graphs.text_config())
    (vectors,) = await _vectors(backend, [_request("red green", "blue")])
    assert (vectors.dtype, vectors.shape) == (np.float32, (2, 8))
    assert np.abs(vectors[0] - vectors[1]).max() > 0.01


async def test_a_batch_of_mixed_lengths_equals_single_requests(
    open_backend: Open, files: Path
) -> None:
    backend = await open_backend(graphs.text_config())
    together = await _vectors(backend, [_request(text) for text in MIXED])
    alone = [(await _vectors(backend, [_request(text)]))[0] for text in MIXED]
    assert_allclose(np.concatenate(together), np.concatenate(alone), atol=1e-5)


async def test_rows_stay_in_order_where_one_run_of_growing_lengths_is_cheapest(
    open_backend: Open, files: Path
) -> None:
    """More padding than a run costs, and still less in one run than in two."""
    texts = ["red " * (18 - many) + "blue" for many in range(9)]
    backend = await open_backend(graphs.text_config())
    (together,) = await _vectors(backend, [_request(*texts)])
    alone = [(await _vectors(backend, [_request(text)]))[0] for text in texts]
    assert_allclose(together, np.concatenate(alone), atol=1e-5)


async def test_requests_of_several_texts_get_their_rows_in_order(
    open_backend: Open, files: Path
) -> None:
    backend = await open_backend(graphs.text_config())
    first, second = await _vectors(backend, [_request(*MIXED[:3]), _request(*MIXED[3:])])
    assert (first.shape, second.shape) == ((3, 8), (4, 8))
    (alone,) = await _vectors(backend, [_request(MIXED[5])])
    assert_allclose(second[2:3], alone, atol=1e-5)


async def test_an_empty_text_has_an_embedding(open_backend: Open, files: Path) -> None:
    backend = await open_backend(graphs.text_config())
    (vectors,) = await _vectors(backend, [_request("")])
    assert np.isfinite(vectors).all()


async def test_invalid_utf8_fails_its_request_only(open_backend: Open, files: Path) -> None:
    backend = await open_backend(graphs.text_config())
    first, bad, last = await backend.execute(
        [_request("red"), _request(b"ab\xff"), _request("blue")]
    )
    assert isinstance(bad, InvalidRequestError)
    assert bad.message == "input 'TEXT' holds a text that is not UTF-8: byte 2 is 0xff"
    (alone,) = await _vectors(backend, [_request("blue")])
    assert_allclose(graphs.tensor(last, "EMBEDDING").numpy(), alone, atol=1e-5)
    assert graphs.tensor(first, "EMBEDDING").shape == (1, 8)


async def test_a_missing_text_fails_its_request_only(open_backend: Open, files: Path) -> None:
    backend = await open_backend(graphs.text_config())
    bad, good = await backend.execute([graphs.request(), _request("red")])
    assert isinstance(bad, InvalidRequestError)
    assert graphs.tensor(good, "EMBEDDING").shape == (1, 8)


async def test_ten_thousand_words_are_cut_as_the_tokenizer_says(
    open_backend: Open, version: Path
) -> None:
    graphs.save_encoder(version / "model.onnx")
    graphs.save_tokenizer(version / "tokenizer.json", longest=6)
    backend = await open_backend(graphs.text_config())
    long, short = await _vectors(backend, [_request("red " * 10_000), _request("red " * 4)])
    assert_allclose(long, short, atol=1e-5)


async def test_a_parameter_cuts_before_the_tokenizer_does(
    open_backend: Open, version: Path
) -> None:
    graphs.save_encoder(version / "model.onnx")
    graphs.save_tokenizer(version / "tokenizer.json", longest=100)
    given = graphs.parameters(penstock__max_tokens="3")
    backend = await open_backend(graphs.text_config(parameters=given))
    long, short = await _vectors(backend, [_request("red blue blue"), _request("red")])
    assert_allclose(long, short, atol=1e-5)


async def test_padding_of_the_tokenizer_file_is_not_paid_for(
    open_backend: Open, version: Path
) -> None:
    """Files ask for a fixed length, which would make short texts as slow as long ones."""
    graphs.save_encoder(version / "model.onnx")
    graphs.save_tokenizer(version / "tokenizer.json", padded_to=128)
    backend = await open_backend(graphs.text_config())
    runs = _watch(backend)
    await backend.execute([_request("red green"), _request("blue")])
    assert runs == [(2, 4)]


async def test_texts_of_very_different_length_run_apart(open_backend: Open, files: Path) -> None:
    backend = await open_backend(graphs.text_config())
    runs = _watch(backend)
    await backend.execute([_request("red"), _request(LONG), _request("red"), _request("red")])
    assert runs == [(3, 3), (1, 122)]


def _watch(backend: OnnxRuntimeBackend) -> list[tuple[int, ...]]:
    """The shapes that the graph of `backend` is fed from now on."""
    shapes: list[tuple[int, ...]] = []
    graph = backend._answer._graph  # type: ignore[union-attr]
    run = graph.run

    def watched(feeds: Any, names: Any) -> Any:
        shapes.append(feeds["input_ids"].shape)
        return run(feeds, names)

    graph.run = watched
    return shapes


async def test_graphs_with_token_types_are_fed_them(open_backend: Open, version: Path) -> None:
    graphs.save_encoder(version / "model.onnx", token_types=True)
    graphs.save_tokenizer(version / "tokenizer.json")
    backend = await open_backend(graphs.text_config())
    (vectors,) = await _vectors(backend, [_request("red")])
    assert vectors.shape == (1, 8)


async def test_outputs_as_long_as_the_text_come_from_one_run(
    open_backend: Open, version: Path
) -> None:
    ids = graphs.value("input_ids", TensorProto.INT64, ("n", "s"))
    output = graphs.value("IDS", TensorProto.INT64, ("n", "s"))
    node = graphs.node("Identity", ["input_ids"], ["IDS"])
    graphs.save(version / "model.onnx", [node], [ids], [output])
    graphs.save_tokenizer(version / "tokenizer.json")
    config = replace(graphs.text_config(), output=(graphs.tensor_out("IDS", DataType.INT64, -1),))
    backend = await open_backend(config)
    outcomes = await backend.execute([_request("red"), _request(LONG)])
    assert [graphs.tensor(o, "IDS").shape for o in outcomes] == [(1, 122)] * 2
    assert graphs.tensor(outcomes[0], "IDS").numpy()[0, :4].tolist() == [2, 4, 3, 0]


async def test_the_tokenizer_may_lie_above_the_version(open_backend: Open, version: Path) -> None:
    graphs.save_encoder(version / "model.onnx")
    graphs.save_tokenizer(version.parent / "tokenizer.json")
    with raises_nothing():
        await open_backend(graphs.text_config())


async def test_without_batching_a_request_may_hold_many_texts(
    open_backend: Open, files: Path
) -> None:
    config = graphs.text_config(max_batch_size=0)
    config = replace(
        config,
        input=(graphs.tensor_in("TEXT", DataType.BYTES, -1),),
        output=(graphs.tensor_out("EMBEDDING", DataType.FP32, -1, 8),),
    )
    backend = await open_backend(config)
    (vectors,) = await _vectors(backend, [graphs.request(TEXT=Tensor.from_strings(MIXED))])
    assert vectors.shape == (len(MIXED), 8)


async def test_traced_requests_tell_their_tokens_and_padding(
    open_backend: Open, files: Path
) -> None:
    backend = await open_backend(graphs.text_config())
    short, long = Trace(1).root, Trace(1).root
    requests = [
        scoped(_request("red", "red green"), timeline=short),
        _request(LONG),
        scoped(_request(LONG), timeline=long),
    ]
    short.facts["cache"] = "miss"
    await _vectors(backend, requests)
    tokens = [timeline.facts["gen_ai.usage.input_tokens"] for timeline in (short, long)]
    assert tokens == [7, 122]
    assert short.facts == {
        "cache": "miss",
        "gen_ai.operation.name": "embeddings",
        "gen_ai.provider.name": "onnxruntime",
        "gen_ai.request.model": requests[0].model_name,
        "gen_ai.usage.input_tokens": 7,
        "penstock.encoder.padded_tokens": 8,
        "penstock.encoder.runs": 2,
    }
    assert long.facts["penstock.encoder.padded_tokens"] == 122


async def test_a_missing_tokenizer_is_named(open_backend: Open, version: Path) -> None:
    graphs.save_encoder(version / "model.onnx")
    with pytest.raises(
        ModelLoadError, match=r"'penstock.tokenizer': file tokenizer.json is neither"
    ):
        await open_backend(graphs.text_config())


async def test_a_broken_tokenizer_is_named(open_backend: Open, files: Path) -> None:
    (files / "tokenizer.json").write_text("{}")
    with pytest.raises(ModelLoadError, match=r"tokenizer.json is not a tokenizer"):
        await open_backend(graphs.text_config())


async def test_a_missing_package_is_named_with_the_line_that_installs_it(
    open_backend: Open, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(BackendNotInstalledError, match=r"pip install 'penstock\[onnx\]'"):
        await open_backend(graphs.text_config())


async def test_a_graph_that_takes_no_tokens_is_refused(open_backend: Open, version: Path) -> None:
    graphs.save_identity(version / "model.onnx")
    graphs.save_tokenizer(version / "tokenizer.json")
    with pytest.raises(ModelLoadError, match=r"has the inputs input_ids.*this one has x"):
        await open_backend(graphs.text_config())


@pytest.mark.parametrize(
    ("config", "text"),
    [
        (graphs.text_config(parameters=graphs.parameters(penstock__max_tokens="0")), "max_tokens"),
        (replace(graphs.text_config(), input=()), "one input of TYPE_STRING"),
        (
            replace(graphs.text_config(), input=(graphs.tensor_in("TEXT", DataType.INT64, 1),)),
            "one input of TYPE_STRING",
        ),
        (
            replace(graphs.text_config(), input=(graphs.tensor_in("TEXT", DataType.BYTES, 2),)),
            r"dims: \[ 1 \]",
        ),
    ],
)
def test_a_configuration_without_texts_is_refused(config: ModelConfig, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        OnnxRuntimeBackend.check_config(config)
