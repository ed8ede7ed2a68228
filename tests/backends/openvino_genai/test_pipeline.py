"""The real pipeline accepts all that our own checks accept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.conftest import F32
from penstock.core.errors import ModelLoadError
from penstock_backends.openvino_genai.pipeline import GenAiPipeline, reason
from penstock_backends.openvino_genai.sampling import read_sampling
from penstock_backends.openvino_genai.settings import EngineSettings

pytest.importorskip("openvino_genai", reason="OpenVINO GenAI is not installed")

PROMPT = (100, 200, 300, 400)

parameters = st.fixed_dictionaries(
    {"max_tokens": st.integers(2, 6)},
    optional={
        "min_tokens": st.integers(0, 2),
        "temperature": st.floats(0, 2),
        "top_p": st.floats(0, 1, exclude_min=True),
        "top_k": st.integers(-1, (1 << 31) - 1),
        "min_p": st.floats(0, 1),
        "presence_penalty": st.floats(-2, 2),
        "frequency_penalty": st.floats(-2, 2),
        "repetition_penalty": st.floats(0, exclude_min=True, allow_infinity=False),
        "seed": st.integers(-1, (1 << 64) - 1),
        "stop_token_ids": st.lists(st.integers(0, 4095), max_size=3),
        "ignore_eos": st.booleans(),
    },
)


def open_pipeline(version: Path, **changes: Any) -> GenAiPipeline:
    given = {"max_model_len": 1024, "num_kv_blocks": 64, "properties": F32, **changes}
    return GenAiPipeline(
        EngineSettings(version / "model.gguf", version / "tokenizer.json", **given)
    )


@pytest.fixture(scope="module")
def pipeline(gguf_version: Path) -> GenAiPipeline:
    return open_pipeline(gguf_version)


def generate(pipeline: GenAiPipeline, given: dict[str, Any]) -> tuple[list[int], str | None]:
    sampling = read_sampling(given, vocabulary=4096, max_num_seqs=8, top_k_cap=50)
    handle = pipeline.add(PROMPT, sampling, logprobs=True)
    tokens: list[int] = []
    while True:
        pipeline.step()
        output = handle.read()
        assert output is not None
        tokens += output.tokens
        if output.finish_reason is not None:
            return tokens, output.finish_reason


@given(given=parameters)
@settings(deadline=None)
def test_parameters_within_their_ranges_are_taken(
    pipeline: GenAiPipeline, given: dict[str, Any]
) -> None:
    tokens, finish_reason = generate(pipeline, given)
    assert given.get("min_tokens", 0) <= len(tokens) <= given["max_tokens"]
    assert finish_reason in ("stop", "length")
    assert not pipeline.busy


def test_the_hosts_stop_tokens_count_where_the_models_own_do_not(pipeline: GenAiPipeline) -> None:
    """The engine's `ignore_eos` alone would ignore both."""
    plain, _ = generate(pipeline, {"temperature": 0, "ignore_eos": True, "max_tokens": 60})
    other = next(token for token in reversed(plain) if token not in pipeline._stops)
    given = {"temperature": 0, "ignore_eos": True, "max_tokens": 60, "stop_token_ids": [other]}
    tokens, finish_reason = generate(pipeline, given)
    assert (tokens, finish_reason) == (plain[: plain.index(other) + 1], "stop")


def test_a_minimum_masks_no_token_where_none_would_stop(pipeline: GenAiPipeline) -> None:
    given = {"temperature": 0, "ignore_eos": True, "max_tokens": 60}
    assert generate(pipeline, given | {"min_tokens": 60}) == generate(pipeline, given)


def test_a_model_that_cannot_be_loaded_is_named(gguf_version: Path) -> None:
    with pytest.raises(ModelLoadError, match=r"cannot load '.*model\.gguf': Wrong value few"):
        open_pipeline(gguf_version, properties={"KV_CACHE_PRECISION": "few"})


@pytest.fixture
def folder(own_gguf_version: Path) -> Path:
    """A folder in OpenVINO's own format: the engine writes it itself."""
    open_pipeline(own_gguf_version, properties=F32 | {"enable_save_ov_model": True})
    (own_gguf_version / "model.gguf").unlink()
    return own_gguf_version


def open_folder(folder: Path) -> GenAiPipeline:
    return GenAiPipeline(EngineSettings(folder, Path(), 1024, 64, properties=F32))


def test_an_openvino_folder_loads_too(folder: Path, pipeline: GenAiPipeline) -> None:
    (folder / "generation_config.json").write_text('{"eos_token_id": [0, 5]}')
    given = {"temperature": 0, "max_tokens": 50}
    loaded = open_folder(folder)
    assert generate(loaded, given) == generate(pipeline, given)
    assert loaded._stops == [0, 5]


def test_a_model_may_have_no_end_token(folder: Path) -> None:
    given = {"temperature": 0, "max_tokens": 50}
    assert generate(open_folder(folder), given)[1] == "length"


def test_a_reason_is_the_last_line() -> None:
    assert reason(RuntimeError("Check 'a' failed at /build/x.cpp:1:\nno such thing\n\n")) == (
        "no such thing"
    )
    assert reason(ValueError()) == "ValueError"
