"""config.pbtxt, JSON overrides and protobuf messages."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import json_format, text_format
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.configs import model_configs
from harness.examples import examples
from penstock.core.config import (
    DynamicBatching,
    InstanceGroup,
    InstanceKind,
    ModelConfig,
    ModelInput,
    Parameter,
    TensorReshape,
    VersionPolicy,
    config_to_json,
    fields_of,
)
from penstock.core.config.schema import ConfigPart
from penstock.core.errors import ConfigError
from penstock.core.tensor import DataType
from penstock.models.config.pbtxt import (
    config_from_message,
    config_to_message,
    parse_pbtxt,
    read_pbtxt,
)
from penstock.protocol import model_config_pb2

PATH = "models/m/config.pbtxt"


# -- the values mirror the messages --------------------------------------------------------------


@pytest.mark.contract("C-01")
def test_every_field_of_every_message_has_a_place() -> None:
    """Neither side may have a field, an enumeration value or an order that the other lacks."""
    _compare(ModelConfig, model_config_pb2.ModelConfig.DESCRIPTOR)


def _compare(cls: type[ConfigPart], descriptor: object) -> None:
    fields = descriptor.fields  # type: ignore[attr-defined]
    assert [field.name for field in fields_of(cls)] == [field.name for field in fields]
    for ours, theirs in zip(fields_of(cls), fields, strict=True):
        if theirs.message_type is not None and theirs.message_type.GetOptions().map_entry:
            theirs = theirs.message_type.fields_by_name["value"]
        if theirs.message_type is not None:
            _compare(ours.element, theirs.message_type)
        elif theirs.enum_type is not None:
            assert list(ours.names) == [value.name for value in theirs.enum_type.values]


@pytest.mark.slow
@given(model_configs())
@settings(max_examples=examples(50), deadline=None)
def test_message_says_the_same_as_the_config(config: ModelConfig) -> None:
    assert config_from_message(config_to_message(config)) == config


@given(model_configs())
@settings(max_examples=examples(50), deadline=None)
def test_text_says_the_same_as_the_config(config: ModelConfig) -> None:
    text = text_format.MessageToString(config_to_message(config))
    assert parse_pbtxt(text.encode(), PATH) == config


@pytest.mark.contract("C-40", "H-06")
@given(model_configs())
@settings(max_examples=examples(50), deadline=None)
def test_json_with_defaults_is_what_protobuf_prints(config: ModelConfig) -> None:
    expected = json_format.MessageToDict(
        config_to_message(config),
        preserving_proto_field_name=True,
        always_print_fields_with_no_presence=True,
    )
    assert _loose(config_to_json(config, with_defaults=True)) == _loose(expected)


def _loose(value: Any) -> Any:
    """Numbers without their quotes, which protobuf puts around those of 64 bits.

    Also without what release 2.51 of the real server does not know, where it says nothing.
    """
    if isinstance(value, dict):
        items = ((key, _loose(item)) for key, item in value.items())
        return {key: item for key, item in items if (key, item) != ("max_inflight_requests", 0)}
    if isinstance(value, list):
        return [_loose(item) for item in value]
    is_number = isinstance(value, str) and re.fullmatch(r"-?[0-9]+", value)
    return int(value) if is_number else value


# -- config.pbtxt --------------------------------------------------------------------------------


@pytest.mark.contract("C-01")
def test_text_in_all_its_spellings_is_read() -> None:
    text = """
      # a comment
      name : "m";
      backend: 'identity',
      max_batch_size : 8
      input [ { name: "a" data_type: TYPE_FP32 dims: [ -1, 3 ] },
              { name: "b", data_type: TYPE_STRING; dims: 1 reshape: { shape: [ ] } } ]
      input { name: "c" optional: true }
      dynamic_batching { preferred_batch_size: [ 4, 8 ] max_queue_delay_microseconds: 100 }
      instance_group [ { kind: KIND_CPU count: 2 } ]
      parameters { key: "k" value: { string_value: "v" } }
      parameters: { key: "l" value { string_value: "w" "x" } }
      version_policy: { all { } }
    """
    config = parse_pbtxt(text.encode(), PATH)
    assert (config.name, config.backend, config.max_batch_size) == ("m", "identity", 8)
    assert config.input == (
        ModelInput("a", DataType.FP32, dims=(-1, 3)),
        ModelInput("b", DataType.BYTES, dims=(1,), reshape=TensorReshape()),
        ModelInput("c", optional=True),
    )
    assert config.dynamic_batching == DynamicBatching((4, 8), max_queue_delay_microseconds=100)
    assert config.instance_group == (InstanceGroup(kind=InstanceKind.KIND_CPU, count=2),)
    assert config.parameters == {"k": Parameter("v"), "l": Parameter("wx")}
    assert config.version_policy is not None
    assert config.version_policy.all is not None


def test_empty_file_is_an_empty_config() -> None:
    assert parse_pbtxt(b"", PATH) == ModelConfig()


def test_absent_message_differs_from_an_empty_one() -> None:
    assert parse_pbtxt(b"", PATH).version_policy is None
    assert parse_pbtxt(b"version_policy { }", PATH).version_policy == VersionPolicy()


@pytest.mark.contract("C-01", "C-42")
@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('name: "m"\ninput [ { name: "X" \n', '2:17: Expected "}"'),
        (
            "\nmax_batch: 8",
            '2:1: Message type "inference.ModelConfig" has no field named "max_batch"; '
            "did you mean 'max_batch_size'? expected one of name, platform, backend, ",
        ),
        (
            "input { shape: 1 }",
            '1:9: Message type "inference.ModelInput" has no field named "shape"; '
            "did you mean 'reshape'? expected one of name, data_type, format, dims, ",
        ),
        (
            "input [ { data_type: TYPE_FLOAT } ]",
            '1:22: Enum type "inference.DataType" has no value named TYPE_FLOAT; '
            "expected one of TYPE_INVALID, TYPE_BOOL, ",
        ),
        ('max_batch_size: "a"', '1:17: Couldn\'t parse integer: "a"'),
        ("max_batch_size: 99999999999", "1:17: Value out of range: 99999999999"),
        ('name: "a"\nname: "b"', 'should not have multiple "name" fields'),
        (
            "dynamic_batching { }\nsequence_batching { }",
            '2:1: Field "sequence_batching" is specified along with field "dynamic_batching"',
        ),
        ('name: "abc', "1:7: String missing ending quote"),
        ("name: m", "1:7: Expected string but found: 'm'"),
        ("name { }", '1:6: Expected ":"'),
        ("input: 3", '1:8: Expected "{"'),
        ("input { optional: yes_please }", '1:19: Expected "true" or "false"'),
        ("instance_group [ { count: 1 } }", '1:31: Expected ","'),
        ("}", "1:1: Expected identifier or number, got }"),
    ],
)
def test_what_text_gets_wrong_is_named_with_its_place(text: str, problem: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_pbtxt(text.encode(), PATH)
    assert str(refused.value).startswith(f"failed to read text proto from {PATH}:")
    assert problem in str(refused.value)


def test_number_that_is_no_value_of_an_enumeration_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"config.pbtxt: input\[0\].data_type: expected one of"):
        parse_pbtxt(b"input { data_type: 99 }", PATH)


@given(st.text(alphabet="name:input{}[]\"'#,; \n0-1TYPE_FP32\\x\udcc4"))
@settings(max_examples=examples(200), deadline=None)
def test_whatever_the_text_is_only_a_config_error_is_raised(text: str) -> None:
    with suppress(ConfigError):
        parse_pbtxt(text.encode("utf-8", "surrogateescape"), PATH)


def test_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "config.pbtxt"
    path.write_text('name: "ünïcode"')
    assert read_pbtxt(path).name == "ünïcode"


@pytest.mark.contract("C-01")
def test_value_in_another_encoding_loses_those_bytes_and_is_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "config.pbtxt"
    value = "模型".encode("gbk")
    path.write_bytes(
        b'backend: "python"\nparameters { key: "owner" value { string_value: "%b" } }' % value
    )
    assert read_pbtxt(path).parameters == {"owner": Parameter("ģ")}
    assert caplog.messages == [
        f"{path}:2: bytes that are not UTF-8 are left out of 'parameters[owner].value.string_value'"
    ]


def test_a_byte_order_mark_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "config.pbtxt"
    path.write_text('name: "m"\n', encoding="utf-8-sig")
    assert read_pbtxt(path).name == "m"


def test_warnings_of_many_strings_are_bounded(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "config.pbtxt"
    path.write_bytes(b'parameters { key: "k" value { string_value: "\xff" } }\n' * 30)
    assert read_pbtxt(path).parameters == {"k": Parameter("")}
    assert len(caplog.messages) == 21
    assert caplog.messages[0].startswith(f"{path}:1: ")
    assert caplog.messages[19].startswith(f"{path}:20: ")
    assert caplog.messages[20] == f"{path}: 10 more strings are not UTF-8"


def test_name_of_a_field_that_is_no_utf8_is_refused_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "config.pbtxt"
    path.write_bytes(b'name: "m"\n\xff: 1\n')
    with pytest.raises(ConfigError, match=f"failed to read text proto from {path}:2:1: .*"):
        read_pbtxt(path)


def test_comment_in_another_encoding_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "config.pbtxt"
    path.write_bytes(b'name: "m" # f\xfcr alle')
    assert read_pbtxt(path).name == "m"


def test_file_that_cannot_be_read_is_refused_by_name() -> None:
    problem = "^failed to read text proto from /proc/self/mem: Input/output error$"
    with pytest.raises(ConfigError, match=problem):
        read_pbtxt(Path("/proc/self/mem"))


def test_pipe_in_the_place_of_a_file_is_refused_by_name(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    problem = f"^failed to read text proto from {tmp_path / 'pipe'}: it is not a file$"
    with pytest.raises(ConfigError, match=problem):
        read_pbtxt(tmp_path / "pipe")
