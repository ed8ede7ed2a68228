"""What is done where a vLLM lacks a name of its inside; the installed one is asked in `real`."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from typing import Any

import pytest

from backends.vllm.scripted import ScriptedLlm, vllm
from backends.vllm.test_generation import settle, started
from penstock.core.errors import InternalError
from penstock_backends.vllm.internals import Inside, Touch, missing, uncollected


class PublicLlm(ScriptedLlm):
    """Answers by the public API alone: a generator of outputs, which may raise `failure`."""

    failure: Exception | None = None

    async def add_request(self, *_: Any, **__: Any) -> Any:
        raise AssertionError("this is not there")

    async def generate(
        self, prompt: Any, sampling: Any, number: str, **_: Any
    ) -> AsyncIterator[Any]:
        try:
            for step in range(1, sampling.max_tokens + 1):
                await asyncio.sleep(0)
                yield self.output(1, finished=step == sampling.max_tokens)
                if self.failure is not None:
                    raise RuntimeError from self.failure
        except (asyncio.CancelledError, GeneratorExit):
            self.aborted.append(number)
            raise


@pytest.mark.parametrize(
    ("name", "there"),
    [
        ("asyncio:Event.set", True),
        ("asyncio.queues:Queue._maxsize", True),
        ("asyncio:Event.unset", False),
        ("asyncio:Events.set", False),
        ("asyncio.nowhere:Event.set", False),
    ],
    ids=["method", "attribute", "no attribute", "no class", "no module"],
)
def test_names_are_looked_for(name: str, there: bool) -> None:
    assert missing([name]) == ([] if there else [name])


def test_all_missing_names_are_told_at_once(caplog: pytest.LogCaptureFixture) -> None:
    touches = {
        "push": Touch(("asyncio:Event.set", "asyncio:Event.put"), "it is slower"),
        "start": Touch(("asyncio:Event.start",), "the log has it"),
        "media": Touch(("asyncio:Event.wait",), "nothing"),
    }
    inside = Inside(touches)
    assert [inside.has(touch) for touch in touches] == [False, False, True]
    (record,) = caplog.records
    assert record.getMessage() == (
        "the installed vLLM has no asyncio:Event.put, asyncio:Event.start: "
        "it is slower; the log has it"
    )


async def test_outputs_are_read_where_they_cannot_be_pushed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stream = await started(vllm(monkeypatch, PublicLlm(), lacks="push"))
    responses = [response async for response in stream]
    assert b"".join(one.outputs["text_output"].elements()[0] for one in responses) == b"xxxxx"
    assert [response.final for response in responses] == [False] * 4 + [True]


async def test_leaving_ends_a_request_that_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    llm = PublicLlm()
    stream = await started(vllm(monkeypatch, llm, lacks="push"))
    await anext(stream)
    stream.close()
    await settle()
    assert llm.aborted == ["1"]


async def test_an_error_without_a_text_is_its_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    """As vLLM's generator raises one for errors of its inside."""
    llm = PublicLlm()
    llm.failure = InternalError("the cause")
    stream = await started(vllm(monkeypatch, llm, lacks="push"))
    with pytest.raises(InternalError, match=r"^the cause$"):
        [response async for response in stream]


def test_garbage_is_looked_for_again_after_an_import_that_fails() -> None:
    seen = []

    def imported() -> None:
        with uncollected():
            seen.append(gc.isenabled())
            raise ImportError

    with pytest.raises(ImportError):
        imported()
    assert [*seen, gc.isenabled()] == [False, True]
