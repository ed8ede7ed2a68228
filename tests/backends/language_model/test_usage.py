"""Reports of the tokens of a request to the server."""

from __future__ import annotations

from fakes.values import scoped
from penstock.backend import InferenceRequest
from penstock_backends.language_model import EngineStatistics, GenerationTimes, usage_of
from penstock_backends.language_model.usage import EVERY


class _Reports(list[tuple[int, int, int]]):
    def __call__(self, prompt: int, cached: int, generated: int) -> None:
        self.append((prompt, cached, generated))


def _request(reports: _Reports) -> InferenceRequest:
    return scoped(InferenceRequest("m"), report_usage=reports)


def test_first_token_then_every_few_then_the_end_are_reported() -> None:
    reports = _Reports()
    usage = usage_of(_request(reports), 7)
    assert usage is not None
    usage.add(0, finished=False)  # held back by a stop string
    for _ in range(EVERY + 3):
        usage.add(1, finished=False)
    usage.add(1, finished=True)
    assert reports == [(7, 0, 1), (7, 0, EVERY + 1), (7, 0, EVERY + 4)]


def test_request_that_ends_without_a_token_is_reported() -> None:
    reports = _Reports()
    usage = usage_of(_request(reports), 7)
    assert usage is not None
    usage.add(0, finished=True)
    assert reports == [(7, 0, 0)]


def test_what_a_client_leaves_behind_is_reported() -> None:
    reports = _Reports()
    times = GenerationTimes(EngineStatistics(), 7, usage=usage_of(_request(reports), 7))
    times.queued()
    for _ in range(3):
        times.output(1, finished=False)
    times.left(0)
    times.left(0)
    assert reports == [(7, 0, 1), (7, 0, 3)]


def test_prompt_that_was_begun_with_is_reported_where_no_token_came() -> None:
    reports = _Reports()
    times = GenerationTimes(EngineStatistics(), 7, usage=usage_of(_request(reports), 7))
    times.queued()
    times.left(0)
    assert reports == []
    times.scheduled()
    times.left(0)
    times.left(0)
    assert reports == [(7, 0, 0)]


def test_prompt_and_cached_tokens_may_become_known_later() -> None:
    reports = _Reports()
    usage = usage_of(_request(reports))
    assert usage is not None
    usage.prompt, usage.cached = 9, 4
    usage.add(2, finished=False)
    assert reports == [(9, 4, 2)]


def test_request_of_a_server_that_does_not_ask_has_no_reporter() -> None:
    assert usage_of(InferenceRequest("m")) is None


def test_times_of_a_request_report_its_tokens() -> None:
    reports = _Reports()
    times = GenerationTimes(EngineStatistics(), 7, usage=usage_of(_request(reports), 7))
    times.queued()
    times.output(2, finished=False)
    times.output(1, finished=True)
    assert reports == [(7, 0, 2), (7, 0, 3)]
