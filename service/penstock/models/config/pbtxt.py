"""Parser and serializer of configurations: config.pbtxt, JSON and protobuf messages."""

from __future__ import annotations

import logging
import re
from codecs import BOM_UTF8
from pathlib import Path

from google.protobuf import json_format, text_format

from penstock.core.config import ModelConfig, config_from_json, config_to_json
from penstock.core.errors import ConfigError
from penstock.core.nearest_name import suggestion
from penstock.core.turns import SWITCH_INTERVAL
from penstock.models.config.lenient_json import parse_lenient_json
from penstock.models.config.stray_bytes import without_stray_bytes
from penstock.protocol import model_config_pb2
from penstock.protocol.pool import POOL

logger = logging.getLogger(__name__)

_MOST_WARNINGS = 20
"""Lines of the log about strings of one file."""

MOST_CHARACTERS = 1 << 20
"""Characters of the configuration in a load request, at most."""


class PbtxtError(ConfigError):
    """A file that is no configuration; `problem` is what is wrong, from `line` and `column` on.

    Both are 0 where the file as a whole is at fault.
    """

    def __init__(self, path: Path | str, problem: str, line: int = 0, column: int = 0) -> None:
        where = f"{line}:{column}:" if line else ""
        super().__init__(f"failed to read text proto from {path}:{where} {problem}")
        self.problem, self.line, self.column = problem, line, column


def read_pbtxt(path: Path) -> ModelConfig:
    """Parse a `config.pbtxt`; errors name file, line and column."""
    if path.exists() and not path.is_file():  # reading a pipe would block
        raise PbtxtError(path, "it is not a file")
    try:
        content = path.read_bytes()
    except OSError as error:
        raise PbtxtError(path, error.strerror or str(error)) from error
    return parse_pbtxt(content, path)


def parse_pbtxt(content: bytes, path: Path | str) -> ModelConfig:
    """Parse a configuration in protobuf text format; `path` is for messages only.

    Bytes of strings that are not UTF-8 are left out, with a warning, and a byte order mark before
    the first line without one, since editors on Windows write it.
    """
    message = model_config_pb2.ModelConfig()
    text, stray = without_stray_bytes(content.removeprefix(BOM_UTF8))
    for each in stray[:_MOST_WARNINGS]:
        logger.warning(
            "%s:%d: bytes that are not UTF-8 are left out of '%s'", path, each.line, each.key
        )
    if len(stray) > _MOST_WARNINGS:
        logger.warning("%s: %d more strings are not UTF-8", path, len(stray) - _MOST_WARNINGS)
    try:
        text_format.Parse(text, message)
    except text_format.ParseError as error:
        raise _located(path, error, text) from error
    except ValueError as error:  # such as an enumeration value beyond 32 bits
        raise PbtxtError(path, str(error)) from error
    try:
        return config_from_message(message)
    except ConfigError as error:
        raise PbtxtError(path, str(error)) from error


def parse_override(text: str) -> ModelConfig:
    """Parse the JSON configuration of a load request; a long one takes a second, on a thread."""
    if len(text) > MOST_CHARACTERS:
        raise ConfigError(
            f"Invalid config override: the parameter 'config' has {len(text)} characters, which"
            f" exceeds the maximum allowed value of {MOST_CHARACTERS}"
        )
    try:
        with SWITCH_INTERVAL.short():
            return config_from_json(parse_lenient_json(text))
    except (ValueError, ConfigError) as error:
        raise ConfigError(f"Invalid config override: {error}") from error


def config_from_message(message: model_config_pb2.ModelConfig) -> ModelConfig:
    """The configuration of a protobuf message."""
    return config_from_json(json_format.MessageToDict(message, preserving_proto_field_name=True))


def config_to_message(config: ModelConfig) -> model_config_pb2.ModelConfig:
    """The protobuf message of a configuration."""
    message = model_config_pb2.ModelConfig()
    json_format.ParseDict(config_to_json(config), message)
    return message


# -- error messages ----------------------------------------------------------------------------


_UNKNOWN_FIELD = re.compile(r'Message type "([\w.]+)" has no field named "(\w+)"')
_UNKNOWN_VALUE = re.compile(r'Enum type "([\w.]+)" has no value named (\w+)')


def _located(path: Path | str, error: text_format.ParseError, text: str) -> PbtxtError:
    """The error with its place, without the source line that protobuf prepends."""
    line, column = error.GetLine(), error.GetColumn()
    if line is None or column is None:
        return PbtxtError(path, str(error))
    problem = str(error).removeprefix(f"{line}:{column} : ")
    lines = text.split("\n")
    if line <= len(lines):
        problem = problem.removeprefix(f"'{lines[line - 1]}': ")
    problem = problem.removeprefix("'': ")  # at the end of the text
    return PbtxtError(path, f"{problem.rstrip('.')}{_expected(problem)}", line, column)


def _expected(problem: str) -> str:
    """The nearest and all valid names, if the error is about an unknown field or value."""
    if match := _UNKNOWN_FIELD.match(problem):
        names = [field.name for field in POOL.FindMessageTypeByName(match[1]).fields]
    elif match := _UNKNOWN_VALUE.match(problem):
        names = [value.name for value in POOL.FindEnumTypeByName(match[1]).values]
    else:
        return ""
    return f"{suggestion(match[2], names) or ';'} expected one of {', '.join(names)}"
