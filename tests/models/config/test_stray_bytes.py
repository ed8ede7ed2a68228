"""Strings of configurations that are not UTF-8."""

from __future__ import annotations

import pytest

from penstock.models.config.stray_bytes import StrayBytes, without_stray_bytes


@pytest.mark.parametrize(
    ("content", "cleaned"),
    [
        (b'name: "a\xff"', 'name: "a"'),
        (b"name: 'a\xff'", 'name: "a"'),
        (rb'name: "\304\243\320\315"', 'name: "ģ"'),
        (rb'name: "a\xc3" # no end', 'name: "a" # no end'),
        (b'name: "\\\xff\\n"', r'name: "\n"'),
        (b'name: "\\\\\xff"', r'name: "\\"'),
        (b'name: "x" # "a"\n "\xff" # b\n', 'name: "x"\n # b\n'),
        (b"""name: '"\\60' "1\xff" """, r'name: "\"\0601" '),
    ],
    ids=["raw", "single quotes", "octal", "hexadecimal", "escape", "backslash", "parts", "quotes"],
)
def test_bytes_that_are_not_utf8_are_left_out_of_strings(content: bytes, cleaned: str) -> None:
    text, stray = without_stray_bytes(content)
    assert text == cleaned
    assert stray == [StrayBytes(1, "name")]


@pytest.mark.parametrize(
    "text",
    [
        'name: "ünïcode" backend: "a\\tb"',
        r'name: "\303\274"',
        r'name: "\303" "\274"',
        r'name: "\x"',
        r'# "\377' "\nname: 'm'",
    ],
    ids=["characters", "escapes", "escapes in two parts", "no number", "comment"],
)
def test_other_text_stays_as_it_is(text: str) -> None:
    assert without_stray_bytes(text.encode()) == (text, [])


def test_bytes_outside_of_strings_are_escaped() -> None:
    assert without_stray_bytes(b"# f\xfcr\n\xff: 1") == ("# f\\xfcr\n\\xff: 1", [])


@pytest.mark.parametrize(
    ("content", "place"),
    [
        (b'\n# "a"\n name: "\xff"', StrayBytes(3, "name")),
        (b'input [\n{ name: "X" label_filename: "\xff" } ]', StrayBytes(2, "input.label_filename")),
        (b'name: "a\\"{" input < name: "\xff" >', StrayBytes(1, "input.name")),
        (b'input { name: "{" } name: "\xff"', StrayBytes(1, "name")),
        (b'parameters { key: "\xff" }', StrayBytes(1, "parameters.key")),
        (b'metric_tags { key: "a\xff" value: "b" } }', StrayBytes(1, "metric_tags.key")),
        (b'metric_tags { key: "a" "b" value: "\xff" }', StrayBytes(1, "metric_tags[ab].value")),
    ],
)
def test_line_and_key_are_told(content: bytes, place: StrayBytes) -> None:
    assert without_stray_bytes(content)[1] == [place]


def test_lines_after_a_string_of_several_lines_keep_their_numbers() -> None:
    _, stray = without_stray_bytes(b'name: "\xff"\n\n"a"\nbackend: "\xff"')
    assert [each.line for each in stray] == [1, 4]
