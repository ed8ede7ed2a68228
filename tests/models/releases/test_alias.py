"""An alias: its definition, and which target a request goes to."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import InvalidRequestError
from penstock.core.request import InferenceRequest
from penstock.models.releases.alias import Alias
from penstock.models.releases.definition import definition_of, parse_alias

_TWO = {"targets": [{"model": "a", "version": 1, "weight": 75}, {"model": "b", "weight": 25}]}
_WEIGHTS = st.lists(st.integers(0, 100), min_size=1, max_size=6).filter(any)


def _alias(*weights: float, **more: Any) -> Alias:
    whole = sum(weights)
    targets = [
        {"model": f"m{place}", "weight": weight / whole * 100}
        for place, weight in enumerate(weights)
    ]
    return parse_alias("alias", {"targets": targets, **more})


def test_a_definition_is_what_was_defined() -> None:
    alias = parse_alias(
        "chat",
        {**_TWO, "sticky": "header User", "guard": {"max_p99_ratio": 2}, "shadow": {"model": "c"}},
    )
    assert parse_alias("chat", definition_of(alias)) == alias
    assert alias.shares == "'a:1' 75 %, 'b' 25 %"


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, "targets is to be a list"),
        ({"targets": []}, "it needs targets"),
        ({"targets": [{"model": "a", "weight": 60}]}, "add up to 60, not to 100"),
        ({"targets": [{"model": "a", "weight": -1}]}, "weight of 'a' is to be a number from 0"),
        ({"targets": [{"model": "a", "weight": True}]}, "weight of 'a' is to be a number"),
        ({"targets": [{"model": "a", "weight": float("nan")}]}, "weight of 'a' is to be a number"),
        ({"targets": [{"model": "chat"}]}, "names itself"),
        ({"targets": [{"model": "a", "weight": 50}] * 2}, "named twice"),
        ({"targets": [{"weight": 100}]}, "needs the name of a model"),
        ({"targets": [{"model": "a", "version": "1"}]}, "version of 'a' is to be a number"),
        ({"targets": [{"model": "a", "version": -3}]}, "version of 'a' is to be 0 or more"),
        ({"targets": ["a"]}, "an object is needed"),
        ({**_TWO, "sticky": "parameter"}, "sticky is to be"),
        ({**_TWO, "sticky": "cookie"}, "sticky is to be"),
        ({**_TWO, "cookie": {}}, "'cookie' is none of guard, shadow, sticky, targets"),
        ({**_TWO, "shadow": {}}, "a shadow needs the name of a model"),
        ({**_TWO, "shadow": {"model": "chat"}}, "names itself"),
        ({**_TWO, "shadow": {"model": "b", "percent": 101}}, "percent of a shadow is to be a"),
        ({**_TWO, "shadow": {"model": "b", "compare": []}}, "an object is needed"),
        ({**_TWO, "shadow": {"model": "b", "compare": {"labels": [1]}}}, "labels are names"),
        ({**_TWO, "sticky": "header"}, "sticky is to be"),
        ({**_TWO, "guard": {"max_p99_ratio": 0.5}}, "max_p99_ratio is to be 1 or more"),
        ({**_TWO, "guard": []}, "an object is needed"),
        ({**_TWO, "guard": None}, "an object is needed"),
        ({**_TWO, "targets": {}}, "targets is to be a list"),
        ({**_TWO, "guard": {"max_error_rate": 2}}, "max_error_rate is to be a number from 0 to 1"),
        ({**_TWO, "guard": {"window": 0.5}}, "window is to be a number from 2 to 86400"),
    ],
)
def test_what_is_wrong_is_named(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidRequestError, match=said) as refused:
        parse_alias("chat", fields)
    assert refused.value.message.startswith("alias 'chat': ")


@pytest.mark.parametrize("name", ["a\x07b", "\ud800", "x" * 257])
def test_a_name_can_be_shown(name: str) -> None:
    with pytest.raises(InvalidRequestError, match="too long, or has characters"):
        parse_alias(name, {"targets": [{"model": "a"}]})


@given(_WEIGHTS)
def test_each_target_is_drawn_by_its_weight(weights: list[int]) -> None:
    alias, draws = _alias(*weights), 2000
    drawn = Counter(alias.drawn(draw / draws) for draw in range(draws))
    for target, weight in zip(alias.targets, weights, strict=True):
        assert abs(drawn[target] / draws - weight / sum(weights)) <= 2 / draws


@given(_WEIGHTS, st.floats(0, 1, exclude_max=True), st.sets(st.integers(0, 5)))
def test_what_does_not_serve_is_never_drawn(
    weights: list[int], number: float, down: set[int]
) -> None:
    alias = _alias(*weights)
    away = {alias.targets[place] for place in down if place < len(weights)}
    drawn = alias.drawn(number, lambda target: target not in away)
    left = [one for one in alias.targets if one not in away and one.weight > 0]
    assert drawn in left if left else drawn is None


@given(st.text(), st.text())
def test_a_sticky_parameter_has_one_place(value: str, other: str) -> None:
    alias = _alias(1, 1, sticky="parameter user")
    place = alias.place(InferenceRequest("alias", parameters={"user": value}))
    assert place is not None
    assert 0 <= place < 1
    again = alias.place(InferenceRequest("alias", parameters={"user": value, "more": other}))
    assert again == place
    assert alias.place(InferenceRequest("alias")) is None


def test_back_gives_everything_to_the_first() -> None:
    alias = _alias(1, 3, 4).back()
    assert [one.weight for one in alias.targets] == [100, 0, 0]
