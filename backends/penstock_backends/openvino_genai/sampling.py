"""Sampling parameters: the subset of vLLM's that this engine supports, and their limits."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock_backends.language_model import ParameterReader, check_stops, refuse
from penstock_backends.openvino_genai.structure import Structure, read_structure

BACKEND = "openvino_genai"

_GREEDY_BELOW = 1e-5
_COLDEST = 0.01
_SEEDS = 1 << 64


@dataclass(frozen=True, slots=True)
class Sampling:
    """Sampling and stop conditions of a request; names, defaults and meaning are vLLM's.

    `temperature` 0 is greedy, `top_k` 0 is unbounded, and `seed` is set unless greedy.
    """

    n: int
    max_tokens: int
    min_tokens: int
    temperature: float
    top_p: float
    top_k: int
    min_p: float
    presence_penalty: float
    frequency_penalty: float
    repetition_penalty: float
    seed: int
    stop: tuple[str, ...]
    stop_token_ids: tuple[int, ...]
    include_stop_str_in_output: bool
    ignore_eos: bool
    skip_special_tokens: bool
    logprobs: bool
    structure: Structure | None = None

    @property
    def greedy(self) -> bool:
        """Whether decoding is greedy: the most likely token every time."""
        return self.temperature == 0.0


def read_sampling(
    given: Mapping[str, Any], *, vocabulary: int, max_num_seqs: int, top_k_cap: int
) -> Sampling:
    """Parse parameters; raises `InvalidRequestError` that names one the engine does not support."""
    reader = ParameterReader(given)
    max_tokens = reader.integer("max_tokens", 16, 1)
    temperature = _temperature(reader)
    top_p = _top_p(reader)
    sampling = Sampling(
        n=reader.integer("n", 1, 1, max_num_seqs),
        max_tokens=max_tokens,
        min_tokens=reader.integer("min_tokens", 0, 0, max_tokens),
        temperature=temperature,
        top_p=top_p,
        top_k=_top_k(reader, top_p, top_k_cap),
        min_p=reader.number("min_p", 0.0, 0.0, 1.0),
        presence_penalty=reader.number("presence_penalty", 0.0, -2.0, 2.0),
        frequency_penalty=reader.number("frequency_penalty", 0.0, -2.0, 2.0),
        repetition_penalty=_repetition_penalty(reader),
        seed=_seed(reader, temperature),
        stop=_stop(reader),
        stop_token_ids=reader.integers("stop_token_ids", 0, vocabulary - 1),
        include_stop_str_in_output=reader.boolean("include_stop_str_in_output", False),
        ignore_eos=reader.boolean("ignore_eos", False),
        skip_special_tokens=reader.boolean("skip_special_tokens", True),
        logprobs=_logprobs(reader, temperature),
        structure=read_structure(reader.anything("structured_outputs")),
    )
    reader.fixed("detokenize", True, BACKEND)
    reader.fixed("spaces_between_special_tokens", True, BACKEND)
    reader.refuse_unread(BACKEND)
    if sampling.n > 1 and sampling.greedy:
        refuse("n", f"must be 1 where temperature is 0, not {sampling.n}")
    return sampling


def _stop(reader: ParameterReader) -> tuple[str, ...]:
    stops = reader.strings("stop")
    check_stops(stops)
    return stops


def _temperature(reader: ParameterReader) -> float:
    value = reader.number("temperature", 1.0, 0.0, 2.0)
    return 0.0 if value < _GREEDY_BELOW else max(value, _COLDEST)


def _top_p(reader: ParameterReader) -> float:
    value = reader.number("top_p", 1.0, 0.0, 1.0)
    if value == 0.0:
        refuse("top_p", "must be above 0")
    return value


def _top_k(reader: ParameterReader, top_p: float, cap: int) -> int:
    value: int = max(reader.integer("top_k", 0, -1, (1 << 31) - 1), 0)
    return cap if top_p < 1.0 and not value else value


def _repetition_penalty(reader: ParameterReader) -> float:
    value = reader.number("repetition_penalty", 1.0, 0.0)
    if value == 0.0:
        refuse("repetition_penalty", "must be above 0")
    return value


def _seed(reader: ParameterReader, temperature: float) -> int:
    """The seed, or a random one: the engine's default is the same for every request.

    Greedy decoding has none, so that equal parameters are equal.
    """
    value: int = reader.integer("seed", -1, -1, _SEEDS - 1)
    if temperature == 0.0:
        return 0
    return random.getrandbits(63) if value == -1 else value


def _logprobs(reader: ParameterReader, temperature: float) -> bool:
    """Whether to report log probabilities: the engine has those of chosen tokens only."""
    value = reader.integer("logprobs", None)
    if value is None:
        return False
    most = 1 if temperature == 0.0 else 0
    if not 0 <= value <= most:
        refuse(
            "logprobs",
            f"of {value} is not supported by the {BACKEND} backend, which knows the chosen "
            f"token's only: 0, or 1 where temperature is 0",
        )
    return True
