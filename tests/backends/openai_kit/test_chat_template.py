"""Chat templates: what transformers' environment offers, and where templates are found."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from backends.openai_kit.scripted import ScriptedModel, post
from penstock.demo.language_model import CHECKPOINT
from penstock_backends.openai_kit.chat_template import (
    ChatTemplate,
    find_special_tokens,
    find_template,
)
from penstock_backends.openai_kit.generator import ModelFacts

USER: Any = [{"role": "user", "content": "é<&"}]


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{{ messages | tojson }}", '[{"role": "user", "content": "é<&"}]'),
        ("{{ {'a': [1]} | tojson(indent=2) }}", '{\n  "a": [\n    1\n  ]\n}'),
        ("{% for i in [1, 2, 3] %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}", "1"),
        ("{% generation %}said{% endgeneration %}", "said"),
        ("{% set a = 1 %}{% generation %}{% set a = 2 %}{% endgeneration %}{{ a }}", "1"),
        ("{{ bos_token }}{{ tools }}{{ enable_thinking }}", "<s>NoneFalse"),
        ("{{ strftime_now('%%') }}", "%"),
        ("  {% if true %}\nx\n  {% endif %}\n", "x\n"),
    ],
)
def test_templates_find_what_transformers_gives_them(source: str, text: str) -> None:
    template = ChatTemplate(source, {"bos_token": "<s>"})
    assert template.render(USER, None, enable_thinking=False) == text


@pytest.mark.contract("OA-15")
def test_the_demo_model_has_its_template() -> None:
    source = find_template([CHECKPOINT])
    assert source is not None
    prompt = ChatTemplate(source).render(USER, add_generation_prompt=True)
    assert prompt == "<|user|>é<&<|assistant|>"
    assert find_special_tokens([CHECKPOINT])["eos_token"] == "<|end|>"


def test_a_template_is_found_in_the_tokenizers_configuration(tmp_path: Path) -> None:
    named = [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}]
    config = {"chat_template": named, "bos_token": {"content": "<s>"}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    assert find_template([tmp_path / "none", tmp_path]) == "d"
    assert find_template([tmp_path / "none"], "gguf's") == "gguf's"
    assert find_special_tokens([tmp_path]) == {"bos_token": "<s>"}


def test_a_template_that_is_not_utf_8_is_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "chat_template.jinja").write_bytes(b"{{ messages }}\n\xc4\xe3")
    assert "\ufffd" in (find_template([tmp_path]) or "")
    assert f"{tmp_path / 'chat_template.jinja'}:2: what is not UTF-8" in caplog.text


def test_a_template_need_not_be_utf8(tmp_path: Path) -> None:
    (tmp_path / "chat_template.jinja").write_bytes(b"{# f\xfcr #}t")
    source = find_template([tmp_path])
    assert source is not None
    assert ChatTemplate(source).render([]) == "t"


@pytest.mark.parametrize("name", ["documents", "self", "source", "a b", "cls", "__class__"])
def test_variables_may_have_any_name(name: str) -> None:
    template = ChatTemplate("{{ documents }}{{ messages }}")
    assert template.render([], **{name: 7}) == ("7[]" if name == "documents" else "None[]")


async def test_parts_calls_and_developers_are_text_to_a_template() -> None:
    source = "{% for m in messages %}[{{ m.role }}:{{ m.content }}{{ m.tool_calls }}]{% endfor %}"
    model = ScriptedModel(facts=ModelFacts("m", 900, 1 << 20, 1, source))
    function = {"name": "time", "arguments": '{"a": 1}'}
    parts = [{"type": "text", "text": "x"}, {"type": "text", "text": "y"}]
    messages = [
        {"role": "developer", "content": "d"},
        {"role": "user", "content": parts},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "1", "type": "function", "function": function}],
        },
    ]
    await post(model.app(), "/v1/chat/completions", {"model": "m", "messages": messages})
    assert model.prompt == (
        "[system:d][user:x\ny][assistant:[{'id': '1', 'type': 'function', 'function': "
        "{'name': 'time', 'arguments': {'a': 1}}}]]"
    )


@pytest.mark.contract("OA-15")
async def test_a_model_without_a_template_completes_but_does_not_chat() -> None:
    model = ScriptedModel(facts=ModelFacts("m", 200, 1 << 20, 1))
    body: Any = {"model": "m", "messages": USER}
    answer = await post(model.app(), "/v1/chat/completions", body)
    assert "model 'm' has no chat template" in answer.json()["error"]["message"]
    answer = await post(model.app(), "/v1/completions", {"model": "m", "prompt": "a"})
    assert answer.status_code == 200
