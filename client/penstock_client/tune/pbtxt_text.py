"""Edits of a `config.pbtxt` that leave the rest of its text, comments too, as it is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from google.protobuf import text_format

from penstock.protocol.model_config_pb2 import ModelConfig

_TOKEN = re.compile(
    r"""(?P<blank>(?:\s|\#[^\n]*)+)|(?P<string>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')"""
    r"""|(?P<word>[\w.+-]+)|(?P<mark>.)"""
)
_CLOSING = {"{": "}", "<": ">", "[": "]"}
_PARAMETERS = "parameters"


@dataclass(frozen=True, slots=True)
class FieldText:
    """The place of one top-level field in the text."""

    name: str
    begin: int
    end: int


def merge(text: str, wanted: ModelConfig) -> str:
    """The text with those top-level fields replaced that are not as wanted.

    Of `parameters` only those entries are replaced that differ. Raises
    `google.protobuf.text_format.ParseError` for a text that is no configuration.
    """
    present = text_format.Parse(text, ModelConfig())
    edits = list(_edits(text, present, wanted))
    merged = text
    for begin, end, new in sorted(edits, reverse=True):
        merged = _replaced(merged, begin, end, new)
    added = [
        new
        for name in _differing(present, wanted)
        if (new := _missing(name, present, wanted, text))
    ]
    if added:
        merged = f"{merged.rstrip()}\n" + "\n".join(added) + "\n"
    # Forms of the text format that the scan does not know must not change what is asked for.
    return merged if _says(merged, wanted) else str(text_format.MessageToString(wanted))


def _says(text: str, wanted: ModelConfig) -> bool:
    try:
        return bool(text_format.Parse(text, ModelConfig()) == wanted)
    except text_format.ParseError:
        return False


def fields(text: str) -> Iterator[FieldText]:
    """The top-level fields of a valid configuration, in order."""
    tokens = [each for each in _TOKEN.finditer(text) if each.lastgroup != "blank"]
    at = 0
    while at < len(tokens):
        name, at = tokens[at], at + 1
        if name.lastgroup != "word":
            continue  # a separator between fields
        end = _value_end(tokens, at)
        yield FieldText(name[0], name.start(), tokens[end - 1].end())
        at = end


def _value_end(tokens: list[re.Match[str]], at: int) -> int:
    """The number of the token behind a value."""
    if at < len(tokens) and tokens[at][0] == ":":
        at += 1
    if at < len(tokens) and tokens[at][0] in _CLOSING:
        return _closed(tokens, at)
    if at < len(tokens) and tokens[at].lastgroup == "string":
        while at < len(tokens) and tokens[at].lastgroup == "string":
            at += 1
        return at
    return at + 1


def _closed(tokens: list[re.Match[str]], at: int) -> int:
    """The number of the token behind the bracket that closes the one at `at`."""
    open_ones = []
    for number in range(at, len(tokens)):
        token = tokens[number]
        if token.lastgroup != "mark":
            continue
        if token[0] in _CLOSING:
            open_ones.append(_CLOSING[token[0]])
        elif open_ones and token[0] == open_ones[-1]:
            open_ones.pop()
            if not open_ones:
                return number + 1
    return len(tokens)


def _edits(text: str, present: ModelConfig, wanted: ModelConfig) -> Iterator[tuple[int, int, str]]:
    """Begin, end and new text of each field that is not as wanted."""
    differing = _differing(present, wanted)
    seen: set[str] = set()
    for field in fields(text):
        if field.name not in differing:
            continue
        if field.name == _PARAMETERS:
            yield from _parameter_edits(text, field, wanted)
            continue
        new = "" if field.name in seen else _rendered(field.name, wanted)
        seen.add(field.name)
        yield field.begin, field.end, new


def _parameter_edits(
    text: str, field: FieldText, wanted: ModelConfig
) -> Iterator[tuple[int, int, str]]:
    own = text_format.Parse(text[field.begin : field.end], ModelConfig()).parameters
    if all(key in wanted.parameters and wanted.parameters[key] == own[key] for key in own):
        return
    kept = ModelConfig()
    for key in own:
        if key in wanted.parameters:
            kept.parameters[key].CopyFrom(wanted.parameters[key])
    yield field.begin, field.end, _rendered(_PARAMETERS, kept)


def _missing(name: str, present: ModelConfig, wanted: ModelConfig, text: str) -> str:
    """The part of a field that no place in the text holds, and that has to be added."""
    if name != _PARAMETERS:
        return "" if any(each.name == name for each in fields(text)) else _rendered(name, wanted)
    new = ModelConfig()
    for key in wanted.parameters:
        if key not in present.parameters:
            new.parameters[key].CopyFrom(wanted.parameters[key])
    return _rendered(name, new)


def _differing(present: ModelConfig, wanted: ModelConfig) -> list[str]:
    """The names of the top-level fields that are not equal."""
    names = [field.name for field in ModelConfig.DESCRIPTOR.fields]
    return [name for name in names if _only(name, present) != _only(name, wanted)]


def _only(name: str, message: ModelConfig) -> ModelConfig:
    """A message with one field of another."""
    found = ModelConfig()
    found.CopyFrom(message)
    for field, _ in message.ListFields():
        if field.name != name:
            found.ClearField(field.name)
    return found


def _rendered(name: str, message: ModelConfig) -> str:
    return str(text_format.MessageToString(_only(name, message))).rstrip("\n")


def _replaced(text: str, begin: int, end: int, new: str) -> str:
    """The text with a part replaced; with nothing, its separator and an empty line go, too."""
    if new:
        return text[:begin] + new + text[end:]
    while text[end : end + 1] in (",", ";"):
        end += 1
    line = text.rfind("\n", 0, begin) + 1
    rest = text.find("\n", end)
    rest = len(text) if rest < 0 else rest + 1
    if not text[line:begin].strip() and not text[end:rest].strip():
        begin, end = line, rest
    return text[:begin] + text[end:]
