"""vLLM's entry points, and the routes of its application, are those that this backend knows."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from vllm.config import StructuredOutputsConfig
from vllm.tool_parsers import ToolParserManager
from vllm.utils.argparse_utils import FlexibleArgumentParser

from penstock.core.errors import UnsupportedError
from penstock_backends.vllm.arguments.openai_arguments import FRONTEND, OpenAiArguments
from penstock_backends.vllm.internals import PARAMETERS, EntryPoints
from penstock_backends.vllm.openai.application import HIDDEN, SHOWN
from penstock_backends.vllm.openai.request_fields import fields_by_path

EVERY_TASK = ("generate", "embed", "classify", "score", "token_embed", "plugin", "transcription")
OPTIONAL = {"/cohere/v2/chat", "/tokenizer_info"}


@pytest.fixture(scope="module")
def parser() -> FlexibleArgumentParser:
    made: FlexibleArgumentParser = EntryPoints.find().make_arg_parser(FlexibleArgumentParser())
    return made


@pytest.fixture(scope="module")
def routes(parser: FlexibleArgumentParser) -> list[Any]:
    """The routes for models of any kind, with those that an argument adds."""
    options = parser.parse_args(OpenAiArguments(values={"enable_scale_out": True}).options)
    config = SimpleNamespace(get_pooling_task=lambda tasks: "embed")
    return list(EntryPoints.find().build_app(options, EVERY_TASK, config).routes)


def test_front_end_arguments_exist(parser: FlexibleArgumentParser) -> None:
    options = parser.parse_args([])
    ours = {"model", "served_model_name", "structured_outputs_config", "disable_log_stats"}
    assert {*FRONTEND, *ours, "disable_fastapi_docs"} <= set(vars(options))
    assert isinstance(options.structured_outputs_config, StructuredOutputsConfig | None)
    assert "hermes" in ToolParserManager.list_registered()


def test_options_are_read_as_they_are_meant(parser: FlexibleArgumentParser) -> None:
    values = {
        "tool_call_parser": "hermes",
        "enable_auto_tool_choice": True,
        "chat_template": "{{ messages }}",
        "default_chat_template_kwargs": {"enable_thinking": False},
        "enable_prompt_tokens_details": False,
    }
    options = vars(parser.parse_args(OpenAiArguments(values=values).options))
    assert {name: options[name] for name in values} == values


def test_every_route_is_known(routes: list[Any]) -> None:
    """A path that vanishes or a new one is told here, to be shown to clients or not."""
    there = {route.path for route in routes} - OPTIONAL
    assert there - SHOWN.keys() - HIDDEN == set(), "new routes of vLLM"
    assert SHOWN.keys() - there == set(), "routes that vLLM has no more"


def test_methods_of_shown_routes_are_theirs(routes: list[Any]) -> None:
    methods = {route.path: route.methods for route in routes if route.path in SHOWN}
    assert [path for path, method in SHOWN.items() if method not in methods[path]] == []


def test_fields_of_requests_are_found(routes: list[Any]) -> None:
    fields = fields_by_path(routes)
    assert {"messages", "tools", "max_completion_tokens"} <= fields["/v1/chat/completions"]
    assert {"prompt", "suffix", "echo"} <= fields["/v1/completions"]
    assert {"input", "dimensions", "messages"} <= fields["/v1/embeddings"]
    assert {"tokens"} <= fields["/detokenize"]


def test_other_parameters_turn_the_routes_off() -> None:
    other = {**PARAMETERS, "build_app": ("everything",)}
    with pytest.raises(UnsupportedError, match=r"vLLM \S+ has no build_app\(everything\)"):
        EntryPoints.find(other)
