"""Edits of `config.pbtxt`: what is asked for changes, all other text stays."""

from __future__ import annotations

from google.protobuf import text_format
from hypothesis import given
from hypothesis import strategies as st

from penstock.protocol.model_config_pb2 import ModelConfig
from penstock_client.tune.pbtxt_text import fields, merge

_TEXT = """\
# An encoder.
name: "m"  # its "name" { of the folder
backend: 'onnx' "runtime"
max_batch_size: 32
input [ { name: "TEXT" data_type: TYPE_STRING dims: [ 1 ] } ]
# Batches form while instances are busy.
dynamic_batching { }
instance_group [ { count: 1 } ], parameters { key: "a" value: { string_value: "1}" } };
parameters: < key: "b" value: < string_value: "#2" > >
"""


def _parsed(text: str) -> ModelConfig:
    config = ModelConfig()
    text_format.Parse(text, config)
    return config


def test_fields_are_found_in_every_form() -> None:
    names = [field.name for field in fields(_TEXT)]
    assert names == [
        "name",
        "backend",
        "max_batch_size",
        "input",
        "dynamic_batching",
        "instance_group",
        "parameters",
        "parameters",
    ]


def test_only_what_differs_is_replaced() -> None:
    wanted = _parsed(_TEXT)
    wanted.max_batch_size = 8
    wanted.parameters["b"].string_value = "3"
    merged = merge(_TEXT, wanted)
    assert _parsed(merged) == wanted
    old, new = _TEXT.splitlines(), merged.splitlines()
    assert new[:3] == old[:3]
    assert new[3] == "max_batch_size: 8"
    assert new[4:8] == old[4:8]


def test_a_field_that_is_gone_takes_its_line_with_it() -> None:
    wanted = _parsed(_TEXT)
    wanted.ClearField("dynamic_batching")
    assert merge(_TEXT, wanted) == _TEXT.replace("dynamic_batching { }\n", "")


def test_a_field_between_separators_that_stand_apart_may_go() -> None:
    wanted = ModelConfig(name="m", max_batch_size=4)
    text = 'name: "m" ; dynamic_batching { } ; max_batch_size: 4'
    assert _parsed(merge(text, wanted)) == wanted


def test_new_fields_stand_at_the_end() -> None:
    wanted = _parsed(_TEXT)
    wanted.response_cache.enable = True
    wanted.parameters["c"].string_value = "4"
    merged = merge(_TEXT, wanted)
    assert merged.startswith(_TEXT.rstrip())
    assert _parsed(merged) == wanted


def test_an_empty_configuration_gets_what_is_asked_for() -> None:
    wanted = ModelConfig(max_batch_size=4)
    assert merge("", wanted).strip() == "max_batch_size: 4"


_names = st.text("abc\"'#{}\\é ", min_size=1, max_size=4)
_groups = st.lists(st.integers(1, 9), max_size=3)
_parameters = st.dictionaries(_names, _names, max_size=3)


@st.composite
def _configurations(draw: st.DrawFn) -> ModelConfig:
    config = ModelConfig(name=draw(_names), max_batch_size=draw(st.integers(0, 64)))
    for count in draw(_groups):
        config.instance_group.add(count=count)
    for name, value in draw(_parameters).items():
        config.parameters[name].string_value = value
    if draw(st.booleans()):
        config.dynamic_batching.max_queue_delay_microseconds = draw(st.integers(0, 1000))
        config.dynamic_batching.preferred_batch_size.extend(draw(_groups))
    return config


@given(_configurations(), _configurations(), st.sampled_from(["\n", " # {\n", ";\n", " ", ",\n"]))
def test_any_configuration_becomes_any_other(
    present: ModelConfig, wanted: ModelConfig, separator: str
) -> None:
    parts = [
        text_format.MessageToString(_only(present, field.name), as_one_line=True)
        for field, _ in present.ListFields()
    ]
    text = "# first\n" + separator.join([*parts, ""])
    merged = merge(text, wanted)
    assert _parsed(merged) == wanted
    assert merged.startswith("# first\n")


def _only(message: ModelConfig, name: str) -> ModelConfig:
    found = ModelConfig()
    found.CopyFrom(message)
    for field, _ in message.ListFields():
        if field.name != name:
            found.ClearField(field.name)
    return found
