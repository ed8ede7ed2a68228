"""Which requests are traced: rate, count, callers' contexts, samplers and the tail rule."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import InferenceError, InternalError, RequestCancelledError
from penstock.core.timeline import Trace
from penstock.settings import OpenTelemetrySettings, TraceSettings
from penstock.tracing.sampling import Sampling

TIMESTAMPS = frozenset({"TIMESTAMPS"})


def triton(**settings: Any) -> Sampling:
    return Sampling(TraceSettings(**{"levels": TIMESTAMPS, "file": "f", "rate": 1, **settings}))


def exporting(draws: list[float] | None = None, **settings: Any) -> Sampling:
    """In the OpenTelemetry mode; the ratio's random numbers are `draws`."""
    names = {"sampler", "ratio", "slow_threshold_ms", "always_on_error"}
    mode = OpenTelemetrySettings(**{k: v for k, v in settings.items() if k in names})
    others = {k: v for k, v in settings.items() if k not in names}
    values = iter(draws or [])
    return Sampling(
        TraceSettings(
            mode="opentelemetry",
            opentelemetry=mode,
            **{"levels": TIMESTAMPS, "rate": 1, **others},
        ),
        lambda: next(values),
    )


def taken(sampling: Sampling, *propagated: bool | None) -> list[bool]:
    """For each request whether its trace is made in any case."""
    results = [sampling.sample(flag, 1 if flag is not None else 0) for flag in propagated]
    return [result is not None and bool(result.levels) for result in results]


@pytest.mark.contract("T-06")
def test_the_last_of_each_n_requests_is_traced() -> None:
    assert taken(triton(rate=3), *[None] * 7) == [False, False, True] * 2 + [False]


@pytest.mark.contract("T-06")
@given(
    rate=st.integers(1, 6), count=st.integers(-2, 6), requests=st.lists(st.booleans(), max_size=40)
)
def test_rate_and_count(rate: int, count: int, requests: list[bool]) -> None:
    """Callers' contexts mean nothing in the triton mode."""
    sampling = triton(rate=rate, count=count)
    made = taken(sampling, *(True if flag else None for flag in requests))
    hits = [n % rate == 0 for n in range(1, len(requests) + 1)]
    if count < 0:
        assert made == hits
        assert sampling.live.count == count
    else:
        assert sum(made) == min(count, sum(hits)) == sampling.sampled
        assert (
            made[: len(requests) if sum(hits) <= count else hits.index(True)]
            == (hits[: len(requests) if sum(hits) <= count else hits.index(True)])
        )
        assert sampling.live.count == count - sum(made)
    assert sampling.active == (sampling.count != 0)


@pytest.mark.contract("T-06")
@pytest.mark.parametrize(
    "settings", [{"rate": 0}, {"count": 0}, {"file": ""}, {"levels": frozenset()}]
)
def test_settings_that_trace_nothing(settings: dict[str, Any]) -> None:
    sampling = triton(**settings)
    assert not sampling.active
    assert taken(sampling, None, True) == [False, False]


@pytest.mark.contract("T-16")
@given(
    rate=st.integers(0, 4),
    count=st.integers(-1, 4),
    flags=st.lists(st.sampled_from([None, True, False]), max_size=30),
)
def test_a_request_with_a_context_is_traced_and_counts(
    rate: int, count: int, flags: list[bool | None]
) -> None:
    """As in the real server: whatever its flag, also where rate or count allow none."""
    made = taken(exporting(rate=rate, count=count), *flags)
    plain = taken(triton(rate=rate, count=count), *flags)
    assert made == [sampled or flag is not None for sampled, flag in zip(plain, flags, strict=True)]


@pytest.mark.contract("T-05")
def test_spans_have_no_tensors() -> None:
    both = frozenset({"TIMESTAMPS", "TENSORS"})
    sampled = [make(levels=both).sample() for make in (exporting, triton)]
    assert [each and each.levels for each in sampled] == [TIMESTAMPS, both]
    only = exporting(levels=frozenset({"TENSORS"})).sample()
    assert only is not None
    assert only.levels == TIMESTAMPS


@pytest.mark.parametrize(
    ("sampler", "made"),
    [
        ("always_on", [True, True, True]),
        ("always_off", [False, False, False]),
        ("parentbased_always_on", [True, True, False]),
        ("parentbased_always_off", [False, True, False]),
    ],
)
def test_samplers_of_opentelemetry(sampler: str, made: list[bool]) -> None:
    """Without a context, with one that is sampled, and with one that is not."""
    assert taken(exporting(sampler=sampler), None, True, False) == made


def test_a_ratio_is_of_requests_without_a_context() -> None:
    sampling = exporting([0.1, 0.6, 0.4], sampler="parentbased_traceidratio", ratio=0.5)
    assert taken(sampling, None, None, None, True, False) == [True, False, True, True, False]


def by_trace_id(ratio: float, trace_id: int) -> bool:
    return exporting(sampler="traceidratio", ratio=ratio).sample(False, trace_id) is not None


@given(
    ratios=st.tuples(st.floats(0, 1), st.floats(0, 1)),
    low=st.integers(1, 2**64 - 1),
    high=st.integers(0, 2**64 - 1),
)
def test_a_ratio_takes_a_caller_by_its_trace_id(
    ratios: tuple[float, float], low: int, high: int
) -> None:
    """A service with a higher ratio takes what others take; the higher half does not count."""
    less, more = sorted(ratios)
    assert by_trace_id(less, low) <= by_trace_id(more, low)
    assert by_trace_id(more, low) == by_trace_id(more, high << 64 | low)
    assert (by_trace_id(0.0, low), by_trace_id(1.0, low)) == (False, True)


def test_a_ratio_of_a_half_takes_the_lower_half() -> None:
    taken = [by_trace_id(0.5, trace_id) for trace_id in (1, 2**63 - 1, 2**63, 2**64 - 1)]
    assert taken == [True, True, False, False]


def test_the_rate_thins_out_what_the_sampler_lets_through() -> None:
    sampling = exporting([0.1, 0.9, 0.1, 0.1], sampler="traceidratio", ratio=0.5, rate=2)
    assert taken(sampling, None, None, None, None) == [False, False, True, False]


def finished(error: InferenceError | None = None, milliseconds: int = 0) -> Trace:
    trace = Trace(1)
    trace.root.finish(error, 1 + milliseconds * 1_000_000)
    return trace


@pytest.mark.parametrize(
    ("rule", "trace", "kept"),
    [
        ({"always_on_error": True}, finished(InternalError("x")), True),
        ({"always_on_error": True}, finished(RequestCancelledError()), False),
        ({"always_on_error": True}, finished(None, 10_000), False),
        ({"slow_threshold_ms": 20}, finished(None, 20), True),
        ({"slow_threshold_ms": 20}, finished(None, 19), False),
        ({"slow_threshold_ms": 20}, finished(InternalError("x")), False),
    ],
)
def test_the_end_of_a_request_may_keep_its_trace(
    rule: dict[str, Any], trace: Trace, kept: bool
) -> None:
    sampling = exporting(sampler="always_off", **rule)
    assert sampling.active
    sampled = sampling.sample()
    assert sampled is not None
    assert (sampled.levels, sampled.sampling) == (frozenset(), sampling)
    assert sampling.keeps(trace) == kept


def test_without_a_tail_rule_nothing_is_recorded_in_vain() -> None:
    assert exporting(sampler="always_off").sample() is None
    assert not exporting(sampler="always_off").active
    assert exporting(levels=frozenset(), always_on_error=True).sample() is None
