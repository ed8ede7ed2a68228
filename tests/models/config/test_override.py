"""Configurations in load requests: JSON, as leniently as Triton reads it."""

from __future__ import annotations

import json
import re
import sys
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.config import ModelConfig, ModelInput
from penstock.core.errors import ConfigError
from penstock.core.tensor import DataType
from penstock.core.turns import SwitchInterval
from penstock.models.config import lenient_json, pbtxt
from penstock.models.config.pbtxt import MOST_CHARACTERS, parse_override


@pytest.mark.contract("C-40")
def test_override_is_parsed_from_json() -> None:
    config = parse_override('{"backend": "identity", "input": [{"name": "a", "dims": [-1]}]}')
    assert config == ModelConfig(backend="identity", input=(ModelInput("a", dims=(-1,)),))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "Expected an object key or }"),
        ("[]", "the configuration: expected an object"),
        ('{"foo": 1}', "unknown field 'foo'"),
        ('{"max_batch_size": 1e999}', "max_batch_size: expected an integer"),
        ("[" * 100_000, "Max recursion depth reached"),
    ],
)
def test_override_that_is_wrong_is_refused(text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=f"^Invalid config override: .*{problem}"):
        parse_override(text)


_FORMS: dict[str, tuple[str, bool]] = json.loads(
    Path(__file__).with_name("json_forms.json").read_text()
)
"""What a load request gave Triton 2.51 as its configuration, and whether that accepted it."""

_OTHERWISE = {
    "camel and snake": "one field by two names is refused, since one of both is a mistake",
    "map key twice": "the last of two entries counts, as of two fields",
    "float inf": "what the number means is checked by validation",
}


@pytest.mark.contract("C-40", "X-17")
@pytest.mark.parametrize("name", sorted(_FORMS.keys() - _OTHERWISE.keys()))
def test_overrides_are_read_in_the_forms_that_triton_reads(name: str) -> None:
    text, accepted = _FORMS[name]
    with nullcontext() if accepted else pytest.raises(ConfigError):
        parse_override(text)


@pytest.mark.contract("C-40", "X-17")
def test_lenient_forms_mean_what_they_say() -> None:
    text = """{backend: 'python', 'maxBatchSize': "8", metric_tags: {a_1: 'it\\'s', b: null},
        input: {name: "A", data_type: "type-fp32", dims: [[2], null, 3.0,]},
        instance_group: [{kind: 2, count: "3"}, {kind: "kind_model"}],
        model_transaction_policy: {decoupled: "Yes"}, dynamic_batching: null,}"""
    config = parse_override(text)
    assert (config.backend, config.max_batch_size, config.decoupled) == ("python", 8, True)
    assert config.metric_tags == {"a_1": "it's"}
    assert (config.input[0].data_type, config.input[0].dims) == (DataType.FP32, (2, 3))
    assert [g.kind.value for g in config.instance_group] == ["KIND_CPU", "KIND_MODEL"]
    assert config.instance_group[0].count == 3
    assert config.dynamic_batching is None


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"max_batch_size" 4}', 'Expected : between key:value pair.\n{"max_batch_size" 4}\n'),
        ("{1: 2}", "Expected an object key or }.\n{1: 2}\n ^"),
        ("{", "Unexpected end of string. Expected an object key or }."),
        ('{"a": [1', "Unexpected end of string. Expected , or ] after array value."),
        ("", "Unexpected end of string. Expected a value."),
        ('{"max_batch_size": 04}', "Octal/hex numbers are not valid JSON values."),
        ('{"name": "x', "Closing quote expected in string."),
        ("{} x", "Parsing terminated before end of input.\n{} x\n   ^"),
    ],
)
def test_what_an_override_gets_wrong_is_shown_at_its_place(text: str, told: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(f"Invalid config override: {told}")):
        parse_override(text)


@given(st.text(alphabet="{}[]:,'\"\\ abtrue01.-eu\n", max_size=40))
def test_whatever_an_override_is_only_a_config_error_is_raised(text: str) -> None:
    with suppress(ConfigError):
        parse_override(text)


def test_the_longest_override_is_read_and_a_longer_one_refused() -> None:
    text = '{"name": "m", "metric_tags": {"tag": "' + "x" * (MOST_CHARACTERS - 41) + '"}}'
    assert len(text) == MOST_CHARACTERS
    assert parse_override(text).name == "m"
    with pytest.raises(ConfigError, match=r"'config' has 1048577 characters, .* value of 1048576"):
        parse_override(text + " ")


def test_other_threads_have_their_turns_while_an_override_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each millisecond: with Python's usual 5 every request to the server would wait as long."""
    before, seen = sys.getswitchinterval(), []
    read = lenient_json.parse_lenient_json

    def reading(text: str) -> Any:
        seen.append(sys.getswitchinterval())
        return read(text)

    monkeypatch.setattr(pbtxt, "parse_lenient_json", reading)
    parse_override('{"name": "m"}')
    assert seen == [pytest.approx(0.001)]
    assert sys.getswitchinterval() == before


def test_turns_are_short_until_the_last_override_is_read() -> None:
    usual, interval = sys.getswitchinterval(), SwitchInterval()
    with interval.short():
        with interval.short():
            pass
        assert sys.getswitchinterval() == pytest.approx(0.001)
    assert sys.getswitchinterval() == usual
