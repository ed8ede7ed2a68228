"""Chat templates as our kit renders them, and as transformers does, which they are made for."""

from __future__ import annotations

from typing import Any

import pytest
from transformers.utils.chat_template_utils import render_jinja_template

from penstock_backends.openai_kit.chat_template import ChatTemplate
from penstock_backends.openai_kit.errors import ApiError

MESSAGES: Any = [
    {"role": "system", "content": "Be <brief> & kind."},
    {"role": "user", "content": "How warm is it in Zürich?"},
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [
            {"type": "function", "function": {"name": "warmth", "arguments": {"city": "Zürich"}}}
        ],
    },
    {"role": "tool", "content": "21 °C"},
]
TOOLS: Any = [
    {
        "type": "function",
        "function": {
            "name": "warmth",
            "description": "Degrees <C> & more",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
        },
    }
]

_HERMES = """\
{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}
        {{- messages[0].content + '\\n\\n' }}
    {%- endif %}
    {{- "# Tools\\n<tools>" }}
    {%- for tool in tools %}
        {{- "\\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\\n</tools><|im_end|>\\n" }}
{%- endif %}
{%- set ns = namespace(last=messages|length - 1, asked=false) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if message.role == "user" and not ns.asked %}
        {%- set ns.asked = true %}
        {%- set ns.last = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.role == 'system' and loop.first %}{% continue %}{% endif %}
    {{- '<|im_start|>' + message.role + '\\n' }}
    {%- if message.tool_calls %}
        {%- for call in message.tool_calls %}
            {%- set call = call.function or call %}
            {{- '<tool_call>\\n{"name": "' ~ call.name ~ '", "arguments": ' }}
            {{- call.arguments | tojson(ensure_ascii=true, indent=2, sort_keys=true) }}
            {{- '}\\n</tool_call>' }}
        {%- endfor %}
    {%- else %}
        {{- message.content | trim }}
    {%- endif %}
    {{- '<|im_end|>\\n' }}
{%- endfor %}
{{- ns.last }}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}
"""

_LLAMA = """
{{- bos_token }}
{%- if not date_string is defined %}
    {%- if strftime_now is defined %}
        {%- set date_string = strftime_now("%Y") %}
    {%- endif %}
{%- endif %}
{#- A comment, which is nobody's business -#}
{% for message in messages %}
    {% if loop.index > 3 %}
        {% break %}
    {% endif %}
    {% generation %}
{{ loop.index }} {{ message['role'] }}: {{ message.get('content', '')|replace('\\n', ' ') }}
    {% endgeneration %}
{% endfor %}
{{ tools is none }} {{ documents is none }} {{ undefined_name is defined }} {{ date_string|length }}
"""

_SCOPES = """\
{% set said = 1 %}
{% generation %}
{% set said = 2 %}{{ said }}
{% endgeneration %}
{{ said }}
{%- macro quoted(text) -%}"{{ text }}"{%- endmacro -%}
{{ quoted(messages[1]['content']) }}{{ messages[0] | items | list | length }}
"""

TEMPLATES = {"hermes": _HERMES, "llama": _LLAMA, "scopes": _SCOPES}


def ours(source: str, tools: Any = None, **variables: Any) -> str:
    return ChatTemplate(source, {"bos_token": "<s>"}).render(MESSAGES, tools, **variables)


def theirs(source: str, tools: Any = None, **variables: Any) -> str:
    (text,), _ = render_jinja_template(
        [MESSAGES], tools=tools, chat_template=source, bos_token="<s>", **variables
    )
    return str(text)


@pytest.mark.contract("OA-15")
@pytest.mark.parametrize("source", TEMPLATES.values(), ids=TEMPLATES)
@pytest.mark.parametrize("tools", [None, TOOLS], ids=["plain", "tools"])
@pytest.mark.parametrize("variables", [{}, {"enable_thinking": False}], ids=["", "variables"])
def test_templates_are_rendered_as_by_transformers(
    source: str, tools: Any, variables: dict[str, Any]
) -> None:
    variables = {"add_generation_prompt": True, **variables}
    expected = theirs(source, tools, **variables)
    assert ours(source, tools, **variables) == expected
    assert "Zürich" in expected


@pytest.mark.parametrize(
    "source",
    [
        "{{ raise_exception('roles must alternate') }}",
        "{{ messages[0].content.append(1) }}",
        "{{ messages.append(1) }}",
        "{{ ''.__class__.__mro__ }}",
        "{{ undefined_name.more }}",
        "{% for one in messages %}{{ one }",
    ],
)
def test_what_transformers_refuses_is_refused(source: str) -> None:
    with pytest.raises(Exception, match=r".+") as refused:
        theirs(source)
    with pytest.raises(ApiError) as told:
        ours(source)
    assert str(refused.value) in str(told.value)
