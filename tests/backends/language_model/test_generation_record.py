"""What the timeline of a traced request tells of its generation."""

from __future__ import annotations

from itertools import pairwise

import pytest

from penstock.core.request import InferenceRequest, RequestScope
from penstock.core.timeline import Timeline, Trace
from penstock_backends.language_model import (
    Answer,
    GenerationRecord,
    GenerationRequest,
    record_of,
)
from penstock_backends.openvino_genai.sampling import Sampling, read_sampling

MS = 1_000_000


def timeline() -> Timeline:
    return Trace(1).root


def record(timeline: Timeline, model: str = "") -> GenerationRecord:
    made = record_of(
        InferenceRequest("chatty", scope=RequestScope(timeline=timeline)), "engine", model
    )
    assert made is not None
    return made


def sampling(**given: object) -> Sampling:
    return read_sampling(given, vocabulary=10, max_num_seqs=8, top_k_cap=50)


def asked(**given: object) -> Timeline:
    """A request with these sampling parameters."""
    noted = timeline()
    record(noted).asked(GenerationRequest("P", parameters=given), sampling(**given))
    return noted


def answer(*reasons: str | None) -> Answer:
    made = Answer(GenerationRequest("P"), 1, len(reasons))
    for candidate, reason in zip(made.candidates, reasons, strict=True):
        candidate.finish_reason = reason
    return made


def test_an_untraced_request_has_no_record() -> None:
    assert record_of(InferenceRequest("chatty"), "engine") is None


def test_the_engine_and_both_names_of_the_model_are_facts() -> None:
    noted = timeline()
    record(noted, model="adapter")
    assert noted.facts == {
        "gen_ai.operation.name": "text_completion",
        "gen_ai.provider.name": "engine",
        "gen_ai.request.model": "chatty",
        "gen_ai.response.model": "adapter",
    }


def test_a_model_without_another_name_answers_under_its_own() -> None:
    noted = timeline()
    record(noted)
    assert noted.facts["gen_ai.response.model"] == "chatty"


def test_sampling_parameters_are_facts_where_they_are_given() -> None:
    facts = asked(temperature="0.5", top_p=0.25, max_tokens=7, n=2).facts
    assert {name: value for name, value in facts.items() if ".request." in name} == {
        "gen_ai.request.model": "chatty",
        "gen_ai.request.stream": False,
        "gen_ai.request.max_tokens": 7,
        "gen_ai.request.temperature": 0.5,
        "gen_ai.request.top_p": 0.25,
        "gen_ai.request.choice.count": 2,
    }


def test_the_limit_of_tokens_is_a_fact_even_if_it_is_the_default() -> None:
    facts = asked().facts
    assert facts["gen_ai.request.max_tokens"] == 16
    assert not {"gen_ai.request.temperature", "gen_ai.request.top_p"} & facts.keys()


def test_a_number_that_no_attribute_can_hold_is_cut() -> None:
    assert asked(max_tokens=1 << 70).facts["gen_ai.request.max_tokens"] == (1 << 63) - 1


@pytest.mark.parametrize("given", [{"stop": ["a secret"]}, {"stop_token_ids": [3]}])
def test_what_a_client_stops_at_is_not_recorded(given: dict[str, object]) -> None:
    assert asked(**given).facts.keys() == asked().facts.keys()


def test_a_generation_has_four_marks_and_its_rates() -> None:
    noted = timeline()
    generation = record(noted)
    generation.prompt(5, cached=3)
    generation.queued(10 * MS)
    generation.scheduled(12 * MS)
    generation.produced(1, 20 * MS)
    generation.produced(11, 99 * MS)
    generation.preempted(1)
    generation.ended(answer("length").candidates, 520 * MS)
    assert noted.marks == [
        ("ENGINE_QUEUED", 10 * MS),
        ("PREFILL_START", 12 * MS),
        ("FIRST_TOKEN", 20 * MS),
        ("DECODE_END", 520 * MS),
    ]
    assert {name: fact for name, fact in noted.facts.items() if "model" not in name} == {
        "gen_ai.operation.name": "text_completion",
        "gen_ai.provider.name": "engine",
        "gen_ai.usage.input_tokens": 5,
        "gen_ai.usage.cache_read.input_tokens": 3,
        "gen_ai.usage.output_tokens": 11,
        "gen_ai.response.finish_reasons": ["length"],
        "penstock.llm.preemptions": 1,
        "penstock.llm.queue_time_ms": 2.0,
        "penstock.llm.time_to_first_token_ms": 10.0,
        "penstock.llm.time_per_output_token_ms": 50.0,
        "penstock.llm.total_time_ms": 510.0,
        "penstock.llm.wasted_tokens": 0,
        "penstock.llm.decode_tokens_per_second": 20.0,
    }


def test_without_times_the_marks_are_now() -> None:
    noted = timeline()
    generation = record(noted)
    generation.queued()
    generation.scheduled()
    generation.produced(1)
    generation.ended([])
    times = [at for _, at in noted.marks]
    assert all(earlier <= later for earlier, later in pairwise(times))
    assert times[0] > 1


def test_only_the_first_candidate_is_scheduled_and_makes_the_first_token() -> None:
    noted = timeline()
    generation = record(noted)
    for at in (1, 2):
        generation.scheduled(at)
        generation.produced(at, 10 * at)
    assert noted.marks == [("PREFILL_START", 1), ("FIRST_TOKEN", 10)]
    assert noted.facts["gen_ai.usage.output_tokens"] == 2


def test_the_first_end_counts() -> None:
    noted = timeline()
    generation = record(noted)
    generation.queued(1)
    generation.ended(answer(None).candidates, 5)
    generation.ended(answer("stop").candidates, 7)
    assert noted.marks[-1] == ("DECODE_END", 5)
    assert "gen_ai.response.finish_reasons" not in noted.facts


def test_a_request_that_made_no_token_has_no_rates() -> None:
    noted = timeline()
    generation = record(noted)
    generation.queued(1)
    generation.ended(answer(None).candidates, 5)
    assert noted.facts["gen_ai.usage.output_tokens"] == 0
    told = {name: fact for name, fact in noted.facts.items() if name.startswith("penstock.llm.")}
    assert told == {"penstock.llm.total_time_ms": 4e-6, "penstock.llm.wasted_tokens": 0}


def test_a_request_that_the_engine_refused_has_no_marks() -> None:
    noted = timeline()
    record(noted).ended([])
    assert noted.marks == []


def test_reasons_are_those_of_finished_candidates() -> None:
    noted = timeline()
    record(noted).ended(answer("stop", None, "length").candidates)
    assert noted.facts["gen_ai.response.finish_reasons"] == ["stop", "length"]
