"""vLLM's sampling parameters as this engine supports them."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest

from penstock.core.errors import InvalidRequestError
from penstock_backends.openvino_genai.sampling import Sampling, read_sampling


def read(cap: int = 200, **given: Any) -> Sampling:
    return read_sampling(given, vocabulary=100, max_num_seqs=8, top_k_cap=cap)


def test_defaults_are_vllms() -> None:
    values = asdict(read(seed=1))
    assert values == {
        "n": 1,
        "max_tokens": 16,
        "min_tokens": 0,
        "temperature": 1.0,
        "top_p": 1.0,
        "top_k": 0,
        "min_p": 0.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "repetition_penalty": 1.0,
        "seed": 1,
        "stop": (),
        "stop_token_ids": (),
        "include_stop_str_in_output": False,
        "ignore_eos": False,
        "skip_special_tokens": True,
        "logprobs": False,
        "structure": None,
    }


def test_without_a_seed_every_request_has_its_own() -> None:
    assert read().seed != read().seed
    assert read(seed=-1).seed != read(seed=-1).seed


@pytest.mark.parametrize(("given", "taken"), [(0, 0.0), (1e-6, 0.0), (1e-3, 0.01), ("0.7", 0.7)])
def test_temperature_is_greedy_at_zero_and_never_colder_than_a_hundredth(
    given: Any, taken: float
) -> None:
    assert read(temperature=given).temperature == taken
    assert read(temperature=given).greedy == (taken == 0.0)


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        ({"top_p": 0.9}, 200),
        ({"top_p": 0.9, "top_k": -1}, 200),
        ({"top_p": 0.9, "top_k": 500}, 500),
        ({"top_p": 1.0}, 0),
        ({"top_k": 40}, 40),
    ],
)
def test_top_p_alone_is_bounded(given: dict[str, Any], taken: int) -> None:
    assert read(**given).top_k == taken


def test_the_bound_can_be_lifted() -> None:
    assert read(cap=0, top_p=0.9).top_k == 0


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_tokens", 0),
        ("min_tokens", -1),
        ("min_tokens", 17),
        ("temperature", -0.1),
        ("temperature", 2.1),
        ("top_p", 0),
        ("top_p", 1.1),
        ("top_k", -2),
        ("min_p", 1.1),
        ("presence_penalty", 2.1),
        ("frequency_penalty", -2.1),
        ("repetition_penalty", 0),
        ("seed", -2),
        ("seed", 1 << 64),
        ("n", 0),
        ("n", 9),
        ("stop", [""]),
        ("stop", ["x" * 20_000]),
        ("stop", [str(number) for number in range(257)]),
        ("stop_token_ids", [100]),
        ("stop_token_ids", [5] * 1025),
        ("logprobs", -1),
        ("logprobs", 1),
        ("detokenize", False),
    ],
)
def test_a_value_out_of_range_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(InvalidRequestError, match=f"sampling parameter '{name}' "):
        read(**{name: value})


@pytest.mark.parametrize(
    "name",
    ["logit_bias", "bad_words", "prompt_logprobs", "lora_name", "best_of"],
)
def test_unsupported_parameters_are_refused_by_name(name: str) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        read(**{name: 1})
    assert refused.value.message == (
        f"sampling parameter '{name}' is not supported by the openvino_genai backend"
    )


def test_greedy_candidates_would_all_be_the_same() -> None:
    with pytest.raises(InvalidRequestError, match="'n' must be 1 where temperature is 0"):
        read(n=2, temperature=0)


@pytest.mark.parametrize("given", [{"logprobs": 0}, {"logprobs": 1, "temperature": 0}])
def test_the_chosen_tokens_probability_is_known(given: dict[str, Any]) -> None:
    assert read(**given).logprobs
