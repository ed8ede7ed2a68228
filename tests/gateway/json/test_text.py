"""JSON text: accepted forms, errors and their texts."""

from __future__ import annotations

import json
import math
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import InternalError, InvalidRequestError
from penstock.gateway.json.scan import MAX_DEPTH, TooManyValuesError
from penstock.gateway.json.text import LARGE, dump, dump_sorted, parse

_WRONG = {
    "": "The document is empty. at 0",
    " ": "The document is empty. at 1",
    '{"a"': "Missing a colon after a name of object member. at 4",
    '{"a":': "Invalid value. at 5",
    '{"a" 1}': "Missing a colon after a name of object member. at 5",
    "{a:1}": "Missing a name for object member. at 1",
    "{": "Missing a name for object member. at 1",
    '{"a":1,}': "Missing a name for object member. at 7",
    "[1": "Missing a comma or ']' after an array element. at 2",
    "[1 2]": "Missing a comma or ']' after an array element. at 3",
    '["]", {"a":1 "b":2}]': "Missing a comma or '}' after an object member. at 13",
    "[1,]": "Invalid value. at 3",
    '{"inputs":"abc': "Missing a closing quotation mark in string. at 14",
    '{"inputs":"abc\\': "Invalid escape character in string. at 14",
    '{"inputs":"a\nb"}': "Invalid escape character in string. at 12",
    '{"inputs":"\\x"}': "Invalid escape character in string. at 11",
    '{"inputs":"\\u12G4"}': "Incorrect hex digit after \\u escape in string. at 11",
    '{"inputs":"\\u12': "Incorrect hex digit after \\u escape in string. at 11",
    '{"inputs":"\\ud800x"}': "The surrogate pair in string is invalid. at 11",
    '{"inputs":"\\udfffx"}': "The surrogate pair in string is invalid. at 11",
    '{"inputs":"\\ud83d\\ude00\\udc80"}': "The surrogate pair in string is invalid. at 23",
    '{"inputs":"\\\\ud83d\\ude00"}': "The surrogate pair in string is invalid. at 18",
    '{"inputs":tru}': "Invalid value. at 13",
    '{"inputs":nul': "Invalid value. at 13",
    '{"inputs":Nan}': "Invalid value. at 12",
    '{"inputs":-Infin}': "Invalid value. at 16",
    '{"inputs":-}': "Invalid value. at 11",
    '{"inputs":+1}': "Invalid value. at 10",
    '{"inputs":1.}': "Miss fraction part in number. at 12",
    '{"inputs":1e}': "Miss exponent in number. at 12",
    "1.": "Miss fraction part in number. at 2",
    '{"inputs":01}': "Missing a comma or '}' after an object member. at 11",
    "{} x": "The document root must not be followed by other values. at 3",
    '{"\u00e9":}': "Invalid value. at 6",
}


@pytest.mark.parametrize(("text", "reason"), _WRONG.items())
def test_errors_have_an_offset(text: str, reason: str) -> None:
    """Texts and offsets are those that the real server gives."""
    with pytest.raises(InternalError) as refused:
        parse(text.encode())
    assert str(refused.value) == f"failed to parse the request JSON buffer: {reason}"


@given(st.binary(max_size=40) | st.text('{}[]",:\\ue1.-+ \ntfn0d8aNI', max_size=30).map(str.encode))
def test_garbage_is_refused_or_understood(data: bytes) -> None:
    """Nothing but an error for the client ever comes of garbage."""
    with suppress(InternalError, InvalidRequestError):
        parse(data)


def test_first_of_equal_keys_counts() -> None:
    assert parse(b'{"a":1,"b":2,"a":3}') == {"a": 1, "b": 2}


def test_numbers_that_are_none_in_json_are_numbers() -> None:
    numbers = parse(b"[NaN,Infinity,-Infinity]")
    assert math.isnan(numbers[0])
    assert numbers[1:] == [math.inf, -math.inf]


def test_text_ends_at_a_nul() -> None:
    """So tensors may follow even if no header gives the length of the JSON."""
    assert parse(b'{"a":1}\0\0\1\2') == {"a": 1}


def test_byte_order_mark_is_skipped() -> None:
    assert parse(b"\xef\xbb\xbf{}") == {}


def test_bytes_that_are_no_text_survive() -> None:
    assert dump(parse(b'["\xff\xc3\xa9"]')) == b'["\xff\xc3\xa9"]'


def test_escaped_backslash_before_u_is_not_a_surrogate() -> None:
    assert parse(rb'["\\ud800","\ud83d\ude00"]') == ["\\ud800", "\N{GRINNING FACE}"]


def test_half_a_character_is_found_behind_escaped_backslashes() -> None:
    with pytest.raises(InternalError, match=r"invalid\. at 11$"):
        parse(rb'["\\ud800\\\ud800"]')


def test_integer_of_thousands_of_digits_is_refused() -> None:
    with pytest.raises(InternalError, match="Number too big"):
        parse(b"[" + b"1" * 5000 + b"]")


@pytest.mark.parametrize("number", ["1e999", "-1e999", "1E+400", "2" * 309 + ".0", "9" * 5000])
@pytest.mark.parametrize(
    "where", ["{}", '{{"é\\"1e999": {}}}', "[[0], [1, {}]]", '[{{"a": [{}]}}]']
)
def test_a_number_that_no_double_holds_is_refused_with_its_place(number: str, where: str) -> None:
    text = where.format(number)
    at = len(text[: text.rindex(number)].encode())
    with pytest.raises(InternalError, match=rf"Number too big to be stored in double\. at {at}$"):
        parse(text.encode())


def test_infinity_by_its_name_is_a_number() -> None:
    assert parse(b'[Infinity, -Infinity, "1e999", 1e308]') == [math.inf, -math.inf, "1e999", 1e308]


def _nested(depth: int) -> bytes:
    return b"[" * depth + b"]" * depth


def test_nesting_up_to_the_limit_is_taken() -> None:
    assert json.loads(_nested(MAX_DEPTH)) == parse(_nested(MAX_DEPTH))


@pytest.mark.contract("H-38", "N-12")
@pytest.mark.parametrize("depth", [MAX_DEPTH + 1, 5000, 1_000_000])
def test_nesting_beyond_the_limit_is_refused(depth: int) -> None:
    text = r"JSON nesting depth exceeds maximum allowed limit \(100\)$"
    with pytest.raises(InvalidRequestError, match=text):
        parse(_nested(depth))


def test_depth_hidden_by_strings_does_no_harm() -> None:
    """Of what brackets in strings hide, newer Pythons take as much as the stack holds."""
    text = b'["' + b"]" * 900_000 + b'",' + _nested(500_000) + b"]"
    with pytest.raises(InvalidRequestError, match="nesting depth exceeds"):
        parse(text)


def test_brackets_in_strings_are_no_nesting() -> None:
    text = '["' + "[" * 500 + '\\"["]'
    assert parse(text.encode()) == ["[" * 500 + '"[']


def test_many_brackets_side_by_side_are_no_nesting() -> None:
    rows = [[number] for number in range(300)]
    assert parse(dump(rows)) == rows


def test_members_can_be_sorted() -> None:
    assert dump_sorted({"b": 1, "a": "\u00e9"}) == '{"a":"\u00e9","b":1}'.encode()


_MEMBERS = st.dictionaries(
    st.text(
        st.characters(codec="utf-8") | st.characters(min_codepoint=0xDC80, max_codepoint=0xDCFF)
    ),
    st.text() | st.integers(-(1 << 70), 1 << 70) | st.booleans(),
)


@given(_MEMBERS)
def test_plain_members_are_written_as_all_others(members: dict[str, str | int]) -> None:
    text = json.dumps(members, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    with suppress(UnicodeEncodeError):  # a surrogate that stands for no byte
        assert dump_sorted(members) == text.encode("utf-8", "surrogateescape")


_ESCAPES = st.sampled_from([r"\ud83d", r"\ude00", r"\udc80", r"\\", r"\n", "u", "x", "é"])


@given(st.lists(_ESCAPES, max_size=8))
def test_what_was_understood_can_be_written(escapes: list[str]) -> None:
    """Whether there are halves of characters, which UTF-8 has no bytes for, and where."""
    data = "".join(('{"id":"', *escapes, '"}'))
    value = json.loads(data)
    try:
        value["id"].encode()
    except UnicodeEncodeError:
        with pytest.raises(InternalError, match="The surrogate pair in string is invalid"):
            parse(data.encode())
    else:
        assert json.loads(dump(parse(data.encode()))) == value


def _refused(value: str, most: int) -> bool:
    """Whether a large text with this value in a list has more than so many values."""
    try:
        parse(f"[{value}{' ' * LARGE}]".encode(), most)
    except TooManyValuesError:
        return True
    return False


@pytest.mark.parametrize(
    ("unit", "count"), [('"x"', 100), ("[1,2]", 400), ("{}", 12), ('{"a":1}', 11)]
)
def test_values_are_counted_by_what_they_cost(unit: str, count: int) -> None:
    assert not _refused(",".join([unit] * (count - 4)), 100)
    assert _refused(",".join([unit] * (count + count // 8 + 1)), 100)


def test_numbers_and_literals_count_nothing() -> None:
    assert not _refused(json.dumps([1, 2.5, None, True] * 1000), 8)


def test_names_count_as_strings() -> None:
    members = ",".join(f'"n{n}":1' for n in range(200))
    assert _refused(f"{{{members}}}", 100)
    assert not _refused(f"{{{members}}}", 600)


def test_brackets_in_strings_are_no_objects() -> None:
    assert not _refused(json.dumps([json.dumps({"a": {}, "b": [1]})] * 50), 100)


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        (",]", "Invalid value."),
        (" 2]", "Missing a comma or ']' after an array element."),
        (",1e999]", "Number too big to be stored in double."),
    ],
)
def test_errors_in_large_text_have_an_offset(end: str, reason: str) -> None:
    start = '{"inputs": [{"data": [' + ",".join(["1.5"] * (LARGE // 4))
    at = len(start) + 1
    with pytest.raises(InternalError, match=f"{reason} at {at}$"):
        parse(f"{start}{end}}}]}}".encode())
