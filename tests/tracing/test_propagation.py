"""The context of a caller, from what it sends: all of W3C's rules, and anything else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.timeline import TraceContext, received_timeline
from penstock.tracing.propagation import read_context

_TRACE = "0af7651916cd43dd8448eb211c80319c"
_SPAN = "b7ad6b7169203331"
_VALID = f"00-{_TRACE}-{_SPAN}-01"

pytestmark = pytest.mark.contract("GT-19")


def _read(**headers: str) -> TraceContext | None:
    return read_context(headers)


def test_valid_context() -> None:
    context = _read(traceparent=_VALID, tracestate="a=1", baggage="k=v")
    assert context == (int(_TRACE, 16), int(_SPAN, 16), True, "a=1", "k=v")
    assert context is not None
    assert context.traceparent == _VALID


@pytest.mark.parametrize(
    "text",
    [
        "",
        "garbage",
        _VALID[:-1],
        _VALID + "0",
        _VALID.replace("-", "_"),
        f"0-{_TRACE}-{_SPAN}-01",
        f"00-{_TRACE[1:]}-{_SPAN}-01",
        f"00-{_TRACE}-{_SPAN}0-01",
        f"00-{_TRACE}-{_SPAN}-01-more",
        f"ff-{_TRACE}-{_SPAN}-01",
        f"00-{'0' * 32}-{_SPAN}-01",
        f"00-{_TRACE}-{'0' * 16}-01",
        _VALID.upper(),
        f"00-{_TRACE}-{_SPAN}-0x",
        f"00-{_TRACE}-{_SPAN}-\u0660\u0661",
        f"{_VALID}\n",
    ],
)
def test_what_is_not_valid_starts_a_new_trace(text: str) -> None:
    assert _read(traceparent=text, tracestate="a=1") is None


@pytest.mark.parametrize("text", [f"01-{_TRACE}-{_SPAN}-01-more", f"cc-{_TRACE}-{_SPAN}-01"])
def test_later_versions_may_have_more_fields(text: str) -> None:
    context = _read(traceparent=text)
    assert context is not None
    assert context.traceparent == _VALID


def test_later_version_with_text_behind_its_flags_is_not_valid() -> None:
    assert _read(traceparent=f"01-{_TRACE}-{_SPAN}-01x") is None


@pytest.mark.parametrize(
    ("flags", "sampled"), [("00", False), ("01", True), ("02", False), ("ff", True)]
)
def test_flags_say_whether_the_caller_is_sampled(flags: str, sampled: bool) -> None:
    context = _read(traceparent=f"00-{_TRACE}-{_SPAN}-{flags}")
    assert context is not None
    assert context.sampled is sampled


def _state(*values: str) -> str:
    fields = [("traceparent", _VALID), *(("tracestate", value) for value in values)]
    context = read_context(dict(fields), fields)
    assert context is not None
    return context.state


@pytest.mark.parametrize(
    ("values", "state"),
    [
        (["a=1"], "a=1"),
        (["a=1, b=2 "], "a=1,b=2"),
        (["a=1", "b=2"], "a=1,b=2"),
        (["a=1,,", ""], "a=1"),
        (["tenant@vendor=1"], "tenant@vendor=1"),
        (["A=1"], ""),
        (["a=1,b"], ""),
        (["a=1=2"], ""),
        (["a=\x07"], ""),
        (["a=1", "a=2"], ""),
        ([",".join(f"k{n}=1" for n in range(32))], ",".join(f"k{n}=1" for n in range(32))),
        ([",".join(f"k{n}=1" for n in range(33))], ""),
    ],
)
def test_state_of_one_or_more_headers(values: list[str], state: str) -> None:
    assert _state(*values) == state


def test_long_members_of_a_long_state_go_first_and_then_the_last() -> None:
    members = [f"k{n}={'x' * 60}" for n in range(9)]
    text = ",".join(["long=" + "y" * 200, *members])
    assert _state(text) == ",".join(members[:8])


def _member(key: str, size: int) -> str:
    return f"{key}={'x' * (size - 2)}"


@pytest.mark.parametrize(("first", "left"), [(127, 4), (128, 3)])
def test_state_has_512_characters_with_its_commas(first: int, left: int) -> None:
    members = [_member("a", first), _member("b", 127), _member("c", 127), _member("d", 128)]
    assert _state(*members) == ",".join(members[:left])


def test_state_of_512_characters_keeps_its_long_members() -> None:
    members = [_member("a", 250), _member("b", 150), _member("c", 110)]
    assert _state(*members) == ",".join(members)


@pytest.mark.parametrize(("first", "left"), [(128, slice(4)), (129, slice(1, 5))])
def test_members_of_a_long_state_have_128_characters(first: int, left: slice) -> None:
    members = [_member("a", first), *(_member(key, 100) for key in "bcde")]
    assert _state(*members) == ",".join(members[left])


@pytest.mark.parametrize(("more", "kept"), [(0, True), (1, False)])
def test_baggage_may_have_8_kib(more: int, kept: bool) -> None:
    text = "k=" + "v" * (8190 + more)
    context = _read(traceparent=_VALID, baggage=text)
    assert context is not None
    assert context.baggage == (text if kept else "")


def test_baggage_beyond_8_kib_is_left_out_and_the_context_stays() -> None:
    context = _read(traceparent=_VALID, baggage="k=" + "v" * (64 << 10))
    assert context is not None
    assert context.baggage == ""


def test_several_baggage_headers_are_one() -> None:
    fields = [("traceparent", _VALID), ("baggage", "a=1"), ("baggage", "b=2")]
    context = read_context(dict(fields), fields)
    assert context is not None
    assert context.baggage == "a=1,b=2"


def test_two_parents_are_none() -> None:
    other = f"00-{_TRACE}-{_SPAN[::-1]}-01"
    assert (
        read_context({"traceparent": other}, [("traceparent", _VALID), ("traceparent", other)])
        is None
    )


def test_binary_metadata_of_such_a_name_is_no_header() -> None:
    context = read_context({"traceparent": _VALID}, [("baggage", b"\xff")])
    assert context is not None
    assert context.baggage == ""


_TEXTS = st.text(st.characters(max_codepoint=0x17F), max_size=80)


@given(
    _TEXTS | st.from_regex(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-.*)?"),
    _TEXTS,
    _TEXTS,
)
def test_any_text_is_a_context_that_can_be_sent_on_or_none(
    parent: str, state: str, baggage: str
) -> None:
    context = _read(traceparent=parent, tracestate=state, baggage=baggage)
    if context is None:
        return
    again = _read(
        traceparent=context.traceparent, tracestate=context.state, baggage=context.baggage
    )
    assert again == context
    reference = context.traceparent, context.state, context.baggage
    assert received_timeline(reference, 1).context[:2] == context[:2]


@given(st.integers(1, 2**128 - 1), st.integers(1, 2**64 - 1), st.booleans())
def test_context_is_read_as_it_was_written(trace: int, span: int, sampled: bool) -> None:
    context = TraceContext(trace, span, sampled)
    assert _read(traceparent=context.traceparent) == context
