"""The object `openai` of `model.json`, and the routes that are shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.core.errors import ModelLoadError
from penstock_backends.vllm.arguments.openai_arguments import take_openai
from penstock_backends.vllm.openai.application import HIDDEN, SHOWN, shown_route
from penstock_backends.vllm.openai.request_fields import read_object, too_large, unknown_field

PATH = Path("/models/m/1/model.json")


def test_front_end_arguments_leave_those_of_the_engine() -> None:
    engine: dict[str, Any] = {"model": "x", "openai": {"tool_call_parser": "hermes"}}
    assert take_openai(engine, PATH).options == ["--tool-call-parser=hermes"]
    assert engine == {"model": "x"}


def test_vllm_is_given_no_option_that_the_model_does_not_name() -> None:
    """A vLLM in which one has another name would fail the load of every model."""
    assert take_openai({"model": "x"}, PATH).options == []


def test_engine_gets_what_is_its_own() -> None:
    openai = {"reasoning_parser": "qwen3", "default_max_tokens": 16}
    engine: dict[str, Any] = {"openai": openai}
    take_openai(engine, PATH)
    assert engine["reasoning_parser"] == "qwen3"
    assert engine["override_generation_config"] == {"max_new_tokens": 16}


def test_template_may_be_a_file_of_the_version(tmp_path: Path) -> None:
    (tmp_path / "own.jinja").write_text("{{ messages }}")
    engine: dict[str, Any] = {"openai": {"chat_template": "own.jinja"}}
    taken = take_openai(engine, tmp_path / "model.json")
    assert taken.values == {"chat_template": str(tmp_path / "own.jinja")}


@pytest.mark.parametrize("given", [{}, {"openai": True}, {"openai": None}])
def test_application_is_there_by_default(given: dict[str, Any]) -> None:
    assert take_openai(given, PATH).enabled


def test_application_may_be_off() -> None:
    assert not take_openai({"openai": False}, PATH).enabled


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"tool_parser": "hermes"}, "unknown argument 'tool_parser'.*did you mean"),
        ({"api_key": "x"}, "unknown argument 'api_key'"),
        ({"default_max_tokens": True}, "'default_max_tokens' .* must be a number above 0"),
        ({"unknown_fields": "allow"}, "must be 'refuse' or 'ignore'"),
        ([], "must be an object, or false"),
    ],
)
def test_wrong_arguments_are_refused(given: Any, why: str) -> None:
    with pytest.raises(ModelLoadError, match=why):
        take_openai({"openai": given}, PATH)


def test_shown_routes_are_found_by_their_paths() -> None:
    assert shown_route("/v1/chat/completions") == ("/v1/chat/completions", "POST")
    found = shown_route("/v1/responses/resp_1/cancel")
    assert found == ("/v1/responses/{response_id}/cancel", "POST")
    assert [path for path in HIDDEN if shown_route(path) is not None] == []
    assert not SHOWN.keys() & HIDDEN


@pytest.mark.parametrize(
    ("body", "unknown"),
    [
        (b'{"model": "m", "n": 2}', None),
        (b'{"model": "m", "modle": 2}', ("modle", "; did you mean 'model'?")),
        (b"[1]", None),
    ],
)
def test_unknown_fields_are_named(body: bytes, unknown: tuple[str, str] | None) -> None:
    assert unknown_field(read_object(body), frozenset({"model", "n"})) == unknown


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"{", "Expecting property name"),
        (b'{"a": "\xff"}', "not UTF-8 at byte 7"),
        (b'{"logit_bias": {"5": NaN}}', "NaN is not a number of JSON"),
        (b'{"logit_bias": {"5": -Infinity}}', "-Infinity is not a number of JSON"),
        (b"[" * 100_000, "nested too deeply"),
    ],
)
def test_bodies_that_are_not_json_are_refused(body: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        read_object(body)


@pytest.mark.parametrize(
    ("path", "given", "wrong"),
    [
        ("/v1/chat/completions", {"messages": [{"content": [{}] * 100_000}]}, "messages"),
        ("/v1/chat/completions", {"messages": [{}] * 100_000}, "messages"),
        ("/v1/chat/completions", {"messages": [{}], "stop": [1] * 100_000}, "stop"),
        ("/v1/chat/completions", {"messages": [{}] * 10_000, "logit_bias": {"5": 1}}, None),
        ("/v1/completions", {"prompt": [5] * 100_000}, None),
        ("/v1/completions", {"prompt": [[5] * 100_000] * 8}, None),
        ("/v1/completions", {"prompt": [5] * 2_000_000}, "prompt"),
        ("/v1/completions", {"prompt": [*[5] * 100_000, "a"]}, "prompt"),
        ("/v1/completions", {"prompt": ["a"] * 100_000}, "prompt"),
        ("/v1/completions", {"prompt": [True] * 100_000}, "prompt"),
        ("/v1/embeddings", {"input": ["a"] * 2048}, None),
        ("/v1/responses", {"input": [5] * 100_000}, "input"),
        ("/v1/responses", {"input": [{}] * 1001}, "input"),
        ("/v1/responses", {"input": [{"content": [{}] * 5}] * 1000}, None),
    ],
)
def test_lists_that_would_take_gigabytes_to_check_are_named(
    path: str, given: Any, wrong: str | None
) -> None:
    found = too_large(path, given, 0, 1024)
    assert (None if found is None else found[0]) == wrong


def test_texts_to_tokenize_are_bounded_by_the_context() -> None:
    assert too_large("/tokenize", {"prompt": ""}, 1 << 20, 1024) is None
    found = too_large("/tokenize", {"prompt": ""}, (1 << 20) + 1, 1024)
    assert found == ("prompt", "comes to 1048577 bytes, more than 1048576")
    assert too_large("/tokenize", {"prompt": ""}, 2 << 20, 1 << 17) is None
    assert too_large("/v1/chat/completions", {"messages": []}, 2 << 20, 1024) is None
