"""Requests to the backend with the real engine, and their responses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import openai

from backends.generation import PROMPT, plain, start
from backends.openai_kit.scripted import client_of
from penstock.core.config import ModelConfig
from penstock.testing import RunningInstance, running
from penstock_backends.openvino_genai import OpenVinoGenAiBackend


@dataclass
class Reply:
    """All responses to one request."""

    texts: list[str]
    finals: list[bool]
    outputs: list[dict[str, Any]]

    @property
    def text(self) -> str:
        return "".join(self.texts)

    def all(self, name: str) -> list[Any]:
        return [output[name] for output in self.outputs]


async def ask(
    instance: RunningInstance, prompt: str = PROMPT, *, inputs: Any = None, **sampling: Any
) -> Reply:
    """All that the engine answers, by a stream unless `inputs` say otherwise."""
    reply = Reply([], [], [])
    async for response in start(instance, prompt, inputs=inputs, **sampling):
        reply.outputs.append(plain(response))
        reply.texts.append(reply.outputs[-1]["text_output"][0])
        reply.finals.append(response.final)
    return reply


def opened(version: Path) -> AbstractAsyncContextManager[RunningInstance]:
    return running(OpenVinoGenAiBackend, ModelConfig(name="m"), version)


async def exhaust(responses: AsyncIterator[Any]) -> list[str]:
    return [r.outputs["text_output"].elements()[0].decode() async for r in responses]


async def settled() -> None:
    """Long enough for one more step."""
    for _ in range(20):
        await asyncio.sleep(0)


async def client_for(instance: RunningInstance) -> openai.AsyncOpenAI:
    """A client of the OpenAI application of an instance."""
    assert isinstance(instance.backend, OpenVinoGenAiBackend)
    return client_of(await instance.backend.openai_app())
