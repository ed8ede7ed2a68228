"""What is decided about aliases without a clock: windows, guards, promotions, comparisons."""

from __future__ import annotations

from itertools import pairwise
from math import ceil
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import InferenceError, InternalError, InvalidRequestError
from penstock.core.request import InferenceResponse
from penstock.core.tensor import Tensor
from penstock.models.releases.alias import Alias, Cause, Comparison, Guard
from penstock.models.releases.comparison import Answer, first_difference
from penstock.models.releases.definition import parse_alias, parse_plan
from penstock.models.releases.promotion import Promotion
from penstock.models.releases.window import Answers, LatencySketch, TargetWindow, judged

_TIMES = st.lists(st.floats(1e-6, 100), min_size=1, max_size=200)


def _alias(*weights: float) -> Alias:
    targets = [{"model": f"m{n}", "weight": weight} for n, weight in enumerate(weights)]
    return parse_alias("alias", {"targets": targets})


# -- windows ------------------------------------------------------------------------------------


@given(_TIMES, st.floats(0.01, 1))
def test_a_quantile_is_at_most_two_percent_too_long(times: list[float], share: float) -> None:
    sketch = LatencySketch()
    for time in times:
        sketch.add(time)
    exact = sorted(times)[max(1, ceil(share * len(times))) - 1]
    assert exact * (1 - 1e-9) <= sketch.quantile(share) <= exact * 1.0203


@given(st.lists(st.tuples(st.floats(0, 30), st.booleans()), max_size=60))
def test_a_window_holds_what_is_not_older(events: list[tuple[float, bool]]) -> None:
    window, now, seen = TargetWindow(10.0), 0.0, []
    for later, failed in events:
        now += later
        window.add(now, 0.01, failed=failed)
        seen.append((now, failed))
    inside = window.answers(now).requests
    assert sum(at > now - 9.5 for at, _ in seen) <= inside <= sum(at >= now - 10 for at, _ in seen)
    assert (window.requests, window.failed) == (len(seen), sum(failed for _, failed in seen))


def test_buckets_count_each_time_once() -> None:
    sketch = LatencySketch()
    for time in (0.001, 0.02, 0.3, 4):
        sketch.add(time)
    assert sketch.buckets((0.01, 0.1, float("inf"))) == ((0.01, 1), (0.1, 2), (float("inf"), 4))


# -- guards -------------------------------------------------------------------------------------


def _answers(good: int, bad: int = 0, seconds: float = 0.01) -> Answers:
    answers = Answers()
    for number in range(good + bad):
        answers.add(seconds, failed=number >= good)
    return answers


@given(st.integers(0, 300), st.integers(0, 300), st.integers(1, 300), st.floats(0, 1))
def test_errors_send_it_back_when_there_are_enough(
    good: int, bad: int, least: int, rate: float
) -> None:
    verdict = judged("new", Guard(least, rate, 60), _answers(good, bad), "old", 0)
    expected = good + bad >= least and bad > rate * (good + bad)
    assert (verdict is not None) is expected
    assert verdict is None or verdict.cause is Cause.ERRORS


@given(st.floats(0.001, 1), st.floats(0.001, 1), st.floats(1, 5))
def test_latency_sends_it_back_beyond_the_ratio(base: float, took: float, ratio: float) -> None:
    guard = Guard(10, 1, 60, max_p99_ratio=ratio)
    verdict = judged("new", guard, _answers(200, seconds=took), "old", base)
    if took > base * ratio * 1.001:
        assert verdict is not None
        assert verdict.cause is Cause.LATENCY
    elif took < base * ratio / 1.03:
        assert verdict is None


def test_a_latency_of_seconds_is_told_in_digits() -> None:
    guard = Guard(1, 1, 60, max_p99_ratio=2)
    verdict = judged("new", guard, _answers(200, seconds=2), "old", 0.0123)
    assert verdict is not None
    assert verdict.text.startswith("'new' took 2,0")
    assert "times the 12.3 ms of 'old'" in verdict.text


def test_few_answers_and_an_unknown_base_tell_nothing_of_latency() -> None:
    guard = Guard(1, 1, 60, max_p99_ratio=1)
    assert judged("new", guard, _answers(99, seconds=9), "old", 0.001) is None
    assert judged("new", guard, _answers(500, seconds=9), "old", 0) is None


# -- promotions ---------------------------------------------------------------------------------


@given(
    st.lists(st.integers(1, 100), min_size=1, max_size=8, unique=True).map(sorted),
    st.floats(1, 100),
    st.integers(0, 5),
    st.lists(st.tuples(st.floats(-500, 500), st.integers(0, 9), st.booleans()), max_size=60),
)
def test_a_promotion_takes_each_step_in_its_time(
    steps: list[int], every: float, needed: int, looks: list[tuple[float, int, bool]]
) -> None:
    plan = parse_plan(_alias(100, 0), {"steps": steps, "every": every})
    promotion, now, since = Promotion(plan, 0.0, needed), 0.0, 0.0
    for later, answered, serves in looks:
        now += later  # clocks jump, also backwards
        before = promotion.step
        if promotion.advance(now, answered, serves=serves):
            assert promotion.step == before + 1 < len(steps)
            assert now - since >= every * (1 - 1e-9)
            assert answered >= needed
            assert serves
            since = now
        else:
            assert promotion.step == before
            due = now >= since + every and answered >= needed and serves
            assert not due or promotion.done
    assert promotion.share == steps[promotion.step]


@given(
    st.lists(st.integers(0, 100), min_size=1, max_size=6).filter(any),
    st.floats(0, 100),
    st.integers(0, 5),
)
def test_a_share_leaves_the_others_their_proportions(
    weights: list[int], share: float, place: int
) -> None:
    whole = sum(weights)
    alias = _alias(*(weight * 100 / whole for weight in weights))
    target = alias.targets[place % len(weights)]
    changed = alias.with_share(target, share)
    found = {one.text: one.weight for one in changed.targets}
    assert sum(found.values()) == pytest.approx(100)
    assert found.pop(target.text) == pytest.approx(share if found else 100)
    others = {one.text: one.weight for one in alias.targets if one.text != target.text}
    for name, weight in others.items():
        if total := sum(others.values()):
            assert found[name] == pytest.approx(weight * (100 - share) / total)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"target": "x"}, "is to be one of 'm0', 'm1'"),
        ({"target": 1}, "is to be one of 'm0', 'm1'"),
        ({"steps": []}, "1 to 100 steps"),
        ({"steps": "1,5"}, "steps is to be a list"),
        ({"steps": [5, 1]}, "each above 0 and the one before"),
        ({"steps": [0, 1]}, "each above 0 and the one before"),
        ({"steps": [101]}, "a step is to be a number from 0 to 100"),
        ({"every": 0}, "every is to be a number from 1 to"),
        ({"every": float("nan")}, "every is to be a number"),
        ([], "an object is needed"),
    ],
)
def test_a_wrong_plan_is_named(fields: Any, said: str) -> None:
    with pytest.raises(InvalidRequestError, match=said):
        parse_plan(_alias(100, 0), fields)


# -- comparisons --------------------------------------------------------------------------------


def _numbers(*rows: Any, dtype: Any = np.float32) -> Answer:
    return Answer([_said(Y=Tensor.from_numpy(np.array(row, dtype))) for row in rows], None, 0.1)


def _texts(*texts: bytes) -> Answer:
    return Answer([_said(text=Tensor.from_strings([text])) for text in texts], None, 0.1)


def _said(**outputs: Tensor) -> InferenceResponse:
    return InferenceResponse(outputs)


def _failed(error: InferenceError) -> Answer:
    return Answer([], error, 0.1)


@pytest.mark.parametrize(
    ("first", "second", "how"),
    [
        (_numbers([1.0, 2.0]), _numbers([1.0, 2.01]), Comparison(rtol=0.01)),
        (_numbers([1.0, np.nan]), _numbers([1.0, np.nan]), Comparison()),
        (_numbers([np.inf]), _numbers([np.inf]), Comparison(rtol=0, atol=0)),
        (_numbers([[0.1, 0.9]]), _numbers([[0.3, 0.4]]), Comparison(labels=frozenset("Y"))),
        (_texts(b"one ", b"two"), _texts(b"one", b" ", b"two"), Comparison()),
        (_texts(b""), _texts(b""), Comparison()),
        (_failed(InternalError("a")), _failed(InternalError("b")), Comparison()),
    ],
)
def test_equal_answers(first: Answer, second: Answer, how: Comparison) -> None:
    assert first_difference(first, second, how) is None


@pytest.mark.parametrize(
    ("first", "second", "text", "contents"),
    [
        (
            _numbers([1.0, 2.0, 3.0]),
            _numbers([1.0, 2.5, 3.5]),
            "output 'Y': 2 of 3 elements differ, the first is number 2",
            ("2.0", "2.5"),
        ),
        (_numbers([1.0]), _numbers([[1.0]]), "output 'Y' has shape [1] in the first answer", None),
        (
            _numbers([1.0]),
            _numbers([1], dtype=np.int32),
            "output 'Y' is FP32 in the first answer, INT32 in the other",
            None,
        ),
        (_numbers([1.0], [2.0]), _numbers([1.0]), "has 2 elements in the first answer, 1", None),
        (
            _texts(b"a river"),
            _texts(b"a rivet!"),
            "output 'text': the text is equal for the first 6 bytes of 7 and 8",
            ("a river", "a rivet!"),
        ),
        (_texts(b"x"), _numbers([1.0]), "output 'Y' is missing in the first answer", None),
        (
            _failed(InternalError("no")),
            _texts(b"x"),
            "the first failed (INTERNAL), the second was answered",
            ("no", ""),
        ),
    ],
)
def test_the_first_difference_is_named_and_contents_only_if_asked_for(
    first: Answer, second: Answer, text: str, contents: tuple[str, str] | None
) -> None:
    found = first_difference(first, second, Comparison())
    assert found is not None
    assert found.text.startswith(text) or text in found.text
    assert found.contents is None
    asked = first_difference(first, second, Comparison(contents=True))
    assert asked is not None
    assert asked.contents == contents


def test_another_label_differs() -> None:
    how = Comparison(labels=frozenset("Y"))
    found = first_difference(_numbers([[0.1, 0.9]]), _numbers([[0.9, 0.1]]), how)
    assert found is not None
    assert found.text == "output 'Y': the label of response 1 differs"


@given(st.binary(max_size=40), st.lists(st.integers(0, 40)), st.binary(max_size=40))
def test_how_a_stream_is_cut_makes_no_difference(text: bytes, cuts: list[int], more: bytes) -> None:
    edges = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    pieces = [text[a:b] for a, b in pairwise(edges)]
    assert first_difference(_texts(text, b""), _texts(*pieces, b""), Comparison()) is None
    found = first_difference(_texts(text, b""), _texts(*pieces, more), Comparison())
    assert (found is None) is (more == b"")
