"""OpenAI's API by TensorRT-LLM's own application, over a stand-in."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from backends.exchanging import application, begin, whole
from backends.tensorrt_llm.asking import opened
from backends.tensorrt_llm.conftest import YAML, WriteModel
from penstock.core.errors import InvalidRequestError, ModelLoadError, UnsupportedError
from penstock.testing import RunningInstance

pytestmark = [pytest.mark.usefixtures("stand_in"), pytest.mark.usefixtures("release")]

CHAT = "/v1/chat/completions"


async def answer(
    instance: RunningInstance, path: str = CHAT, body: Any = None, **fields: Any
) -> tuple[int, Any]:
    async with application(instance.backend) as app:
        status, text = await whole(begin(app, path, body or {}, **fields))
    return status, json.loads(text)


async def test_application_is_made_with_the_engine_and_the_settings(version: WriteModel) -> None:
    folder = version(YAML + "openai: {tool_call_parser: qwen3, chat_template: own.jinja}\n")
    (folder / "own.jinja").write_text("{{ messages }}")
    async with opened(folder) as instance:
        status, told = await answer(instance)
        name = instance.config.name
    made = ["LLM", name, "qwen3", str(folder / "own.jinja")]
    assert (status, told) == (200, {"made": made, "path": CHAT})


async def test_application_describes_what_is_shown_of_it(instance: RunningInstance) -> None:
    async with application(instance.backend) as app:
        told = await app.description()
    assert told["info"] == {"title": "TensorRT-LLM", "version": "1"}
    assert [*told["paths"]] == [CHAT]
    assert [*told["components"]["schemas"]] == ["Chat"]


@pytest.mark.parametrize("path", ["/update_weights", "/v1/models", "/metrics", "/release_memory"])
async def test_routes_of_administrators_are_not_shown(instance: RunningInstance, path: str) -> None:
    assert (await answer(instance, path))[0] == 404


async def test_adapter_behind_the_model_is_refused(instance: RunningInstance) -> None:
    with pytest.raises(UnsupportedError, match="lora_request"):
        await answer(instance, parameters={"adapter": "loud"})


@pytest.mark.parametrize(
    ("medium", "url"),
    [
        ("image_url", "http://169.254.169.254/"),
        ("image_url", "/etc/passwd"),
        ("video_url", "file:///a"),
    ],
)
async def test_media_elsewhere_are_refused(
    instance: RunningInstance, medium: str, url: str
) -> None:
    """Its application would ask, or open, whatever a client names."""
    for given in (url, {"url": url}):
        body = {"messages": [{"content": [{"type": medium, medium: given}]}]}
        with pytest.raises(InvalidRequestError, match=f"'{medium}' must hold a data: URL"):
            await answer(instance, body=body)
    body = {"messages": [{"content": [{"type": medium, medium: {"url": "data:,a"}}]}]}
    assert (await answer(instance, body=body))[0] == 200


async def test_api_may_be_off(version: WriteModel) -> None:
    async with opened(version(YAML + "openai: false\n")) as instance:
        with pytest.raises(InvalidRequestError, match="has no OpenAI routes"):
            await answer(instance)


async def test_other_release_turns_the_routes_off(
    instance: RunningInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tensors are served as before."""
    await answer(instance)
    module = sys.modules["tensorrt_llm.serve.openai_server"]
    monkeypatch.setattr(module, "OpenAIServer", lambda llm, everything: None)
    with pytest.raises(UnsupportedError, match=r"are off: TensorRT-LLM.* has no OpenAIServer\("):
        await answer(instance)


@pytest.mark.parametrize(
    ("openai", "why"),
    [
        ("{tool_parser: x}", "unknown argument 'tool_parser'.*did you mean 'tool_call_parser'"),
        ("3", "must be a mapping, or false"),
        ("{chat_template: 3}", "'chat_template' in 'openai' of .* must be a text"),
    ],
)
async def test_wrong_settings_are_refused(version: WriteModel, openai: str, why: str) -> None:
    with pytest.raises(ModelLoadError, match=why):
        async with opened(version(f"{YAML}openai: {openai}\n")):
            pass


async def test_what_its_application_refuses_is_told(version: WriteModel) -> None:
    async with opened(version(YAML + "openai: {tool_call_parser: lost}\n")) as instance:
        with pytest.raises(ModelLoadError, match="no parser 'lost'"):
            await answer(instance)
