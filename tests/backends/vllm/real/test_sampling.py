"""Sampling parameters become vLLM's, or are refused before the engine sees them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from vllm.sampling_params import RequestOutputKind, SamplingParams

from penstock.core.errors import InvalidRequestError
from penstock_backends.vllm.inputs.sampling import read_sampling


def read(**given: Any) -> SamplingParams:
    return read_sampling(given, stream=True)[0]


def test_defaults_are_vllms() -> None:
    assert read() == SamplingParams(output_kind=RequestOutputKind.DELTA)


def test_a_whole_answer_comes_once() -> None:
    assert read_sampling({}, stream=False)[0].output_kind is RequestOutputKind.FINAL_ONLY


def test_numbers_and_booleans_may_be_strings() -> None:
    sampling = read(max_tokens="128", temperature="0.5", ignore_eos="true", seed="7")
    taken = (sampling.max_tokens, sampling.temperature, sampling.ignore_eos, sampling.seed)
    assert taken == (128, 0.5, True, 7)


def test_token_ids_of_a_bias_are_strings_in_json() -> None:
    assert read(logit_bias={"5": 1}).logit_bias == {5: 1.0}


@pytest.mark.parametrize("name", ["structured_outputs", "guided_decoding"])
@pytest.mark.parametrize("encode", [json.dumps, dict])
def test_structure_is_an_object_or_its_text(name: str, encode: Any) -> None:
    sampling = read(**{name: encode({"choice": ["yes", "no"], "backend": "xgrammar"})})
    assert sampling.structured_outputs is not None
    assert sampling.structured_outputs.choice == ["yes", "no"]


@pytest.mark.parametrize("name", ["structured_outputs", "guided_decoding"])
@pytest.mark.parametrize("backend", ["auto", "xgrammar", "xgrammar:no-fallback", None])
def test_a_structure_may_ask_for_the_backend_that_it_has(name: str, backend: str | None) -> None:
    assert read(**{name: {"regex": "a", "backend": backend}}).structured_outputs.regex == "a"


@pytest.mark.parametrize(
    ("name", "given", "why"),
    [
        ("structured_outputs", {"regex": "a", "backend": "outlines"}, "cannot choose the backend"),
        ("guided_decoding", {"regex": "a", "backend": 1}, "cannot choose the backend"),
        (
            "structured_outputs",
            {"regex": "a", "whitespace_patern": " "},
            "has no 'whitespace_patern'; did you mean 'whitespace_pattern'?",
        ),
        ("structured_outputs", {"regex": "a", "_backend": "x"}, "has no '_backend'"),
        (
            "repetition_detection",
            {"max_pattern_size": 3, "min_count": 2, "min_pattern": 2},
            "has no 'min_pattern'",
        ),
    ],
)
def test_what_a_structure_does_not_have_is_refused_by_name(
    name: str, given: dict[str, Any], why: str
) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        read(**{name: given})
    assert why in refused.value.message


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("stop_token_ids", [5]),
        ("allowed_token_ids", [5, 6]),
        ("bad_words", ["word"]),
        ("logprob_token_ids", [5]),
        ("extra_args", {"a": [1]}),
        ("logit_bias", {"5": 1}),
        ("repetition_detection", {"max_pattern_size": 3, "min_count": 2}),
    ],
)
def test_lists_and_objects_may_be_json_texts(name: str, value: Any) -> None:
    """Request parameters have no other form for them."""
    assert getattr(read(**{name: json.dumps(value)}), name) == getattr(read(**{name: value}), name)


def test_a_stop_string_is_taken_as_it_is() -> None:
    assert read(stop='["a"]').stop == ['["a"]']


def test_the_adapters_name_is_taken_out() -> None:
    assert read_sampling({"lora_name": "a"}, stream=True)[1] == "a"


def test_a_misspelt_parameter_is_refused_with_the_one_that_was_meant() -> None:
    with pytest.raises(InvalidRequestError, match=r"backend; did you mean 'max_tokens'\?$"):
        read(max_token=3)


@pytest.mark.parametrize(
    "name",
    [
        "best_off",
        "output_kind",
        "_eos_token_id",
        "skip_clone",
        "routed_experts_prompt_start",  # of outputs that no response has
        "prompt_logprob_token_ids",
        "prompt_logprob_start",
    ],
)
def test_unknown_sampling_parameters_are_refused_by_name(name: str) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        read(**{name: 1})
    unknown = f"sampling parameter '{name}' is not supported by the vllm backend"
    assert refused.value.message.partition(";")[0] == unknown


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", "hot"),
        ("temperature", -1),
        ("max_tokens", 1.5),
        ("max_tokens", 0),
        ("seed", 1.5),
        ("stop", [1]),
        ("stop", [""]),
        ("stop", ["x" * 20_000]),
        ("stop", [str(number) for number in range(1000)]),
        ("kv_transfer_params", "[" * 100_000),
        ("stop_token_ids", ["x"]),
        ("stop_token_ids", [5] * 1025),
        ("allowed_token_ids", "x"),
        ("allowed_token_ids", [5] * 32_769),
        ("logit_bias", {str(token): 1 for token in range(32_769)}),
        ("logit_bias", [1]),
        ("structured_outputs", {}),
        ("structured_outputs", "{"),
        ("structured_outputs", 1),
        ("structured_outputs", {"regex": 1}),
        ("bad_words", 1),
        ("lora_name", 1),
        ("n", 0),
        ("top_p", 0),
    ],
)
def test_a_value_of_the_wrong_kind_never_reaches_the_engine(name: str, value: Any) -> None:
    with pytest.raises(InvalidRequestError, match="sampling parameter"):
        read(**{name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("seed", 1 << 64),
        ("max_tokens", 10**30),
        ("stop", "\ud800"),
        ("extra_args", {"a": ["\ud800"]}),
    ],
)
def test_values_that_cannot_be_encoded_are_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(InvalidRequestError, match=f"sampling parameter '{name}' cannot be encoded"):
        read(**{name: value})


@pytest.mark.parametrize("name", ["logprobs", "prompt_logprobs"])
def test_log_probabilities_are_refused_where_the_engine_would_die_of_them(name: str) -> None:
    with pytest.raises(InvalidRequestError, match=rf"'{name}' needs a C\+\+ compiler"):
        read_sampling({name: 1}, stream=True, logprobs=False)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["word"] * 129, "must hold at most 128 words, not 129"),
        (["x " * 9000], "must have at most 16384 characters together, not 18000"),
    ],
)
def test_bad_words_that_take_long_to_tokenize_are_refused(words: list[str], why: str) -> None:
    with pytest.raises(InvalidRequestError, match=f"'bad_words' {why}"):
        read(bad_words=words)
