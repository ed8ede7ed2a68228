"""The parser of metrics pages."""

from __future__ import annotations

from math import inf, isnan

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from harness import recorded
from penstock.metrics.exposition import Family, MetricKind, Series, render
from penstock_client.reading.metrics_page import Sample, parse


def test_samples_have_names_labels_and_values() -> None:
    page = '# HELP a text\n# TYPE a counter\na{model="m",version="1"} 3\nb 0.5\n'
    assert list(parse(page)) == [
        Sample("a", (("model", "m"), ("version", "1")), 3),
        Sample("b", (), 0.5),
    ]


def test_braces_quotes_and_line_ends_may_stand_in_a_label() -> None:
    (sample,) = parse('a{x="}, y=\\"1\\" {",z="two\\nlines \\\\"} 1')
    assert sample.labels == (("x", '}, y="1" {'), ("z", "two\nlines \\"))


def test_times_and_exemplars_are_left_out() -> None:
    page = 'a 1 1700000000000\nb_bucket{le="1"} 2 # {trace_id="x"} 0.5 1.0\n# EOF\n'
    assert [(sample.name, sample.value) for sample in parse(page)] == [("a", 1), ("b_bucket", 2)]


def test_values_may_be_infinite_or_no_number() -> None:
    values = [sample.value for sample in parse("a +Inf\nb -Inf\nc NaN\n")]
    assert values[:2] == [inf, -inf]
    assert isnan(values[2])


@pytest.mark.parametrize("line", ["", "a", "a{", 'a{x="} 1', "a one", "{} 1", "1a 1", "é 1", "\0"])
def test_a_line_that_is_no_sample_is_left_out(line: str) -> None:
    assert list(parse(f"{line}\nb 1\n")) == [Sample("b", (), 1)]


@given(st.text())
def test_no_text_is_too_strange(text: str) -> None:
    assert all(sample.name for sample in parse(text))


_NAMES = st.from_regex(r"[a-z_][a-z0-9_]{0,8}", fullmatch=True)
_NUMBERS = st.floats(allow_nan=False) | st.integers(-(2**53), 2**53)
_LABELS = st.dictionaries(_NAMES, st.text(max_size=8), max_size=3)


@given(st.dictionaries(_NAMES, st.tuples(_LABELS, _NUMBERS), max_size=5))
def test_what_is_rendered_is_parsed(found: dict[str, tuple[dict[str, str], float]]) -> None:
    families = [
        Family(name, "help", MetricKind.GAUGE, (Series(tuple(labels.items()), value),))
        for name, (labels, value) in found.items()
    ]
    parsed = {
        sample.name: (dict(sample.labels), sample.value) for sample in parse(render(families))
    }
    assert parsed == found


@recorded.needs_answers
def test_pages_of_triton_are_read_as_by_prometheus() -> None:
    text = recorded.log("metrics_after.txt")
    expected = {
        (sample.name, tuple(sample.labels.items()), sample.value)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    found = {tuple(sample) for sample in parse(text)}
    # The other parser calls counters by their name with `_total`.
    assert {(name.removesuffix("_total"), *rest) for name, *rest in expected} == found
