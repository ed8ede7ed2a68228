"""Requests whose outputs vLLM pushes: what reaches their readers, and when the engine hears."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from backends.generation import until
from backends.vllm.scripted import ScriptedLlm, vllm
from backends.vllm.test_traced import request
from fakes.values import scoped
from penstock.core.errors import InternalError, InvalidRequestError, UnavailableError
from penstock.core.stream import ResponseStream
from penstock_backends.vllm import VllmBackend
from penstock_backends.vllm.model_facts import ModelFacts


@pytest.fixture
def llm() -> ScriptedLlm:
    return ScriptedLlm()


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch, llm: ScriptedLlm) -> VllmBackend:
    return vllm(monkeypatch, llm)


async def started(made: VllmBackend, **more: Any) -> ResponseStream:
    """A streamed request, which vLLM is about to be given."""
    (outcome,) = await made.execute([request(None, stream=True, **more)])
    assert isinstance(outcome, ResponseStream)
    for _ in range(3):
        await asyncio.sleep(0)
    return outcome


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def texts(stream: ResponseStream) -> list[str]:
    return [r.outputs["text_output"].elements()[0].decode() for r in stream.take_ready()]


async def test_a_reader_that_keeps_up_gets_each_token(made: VllmBackend) -> None:
    responses = [response async for response in await started(made)]
    assert len(responses) == 5
    assert [response.final for response in responses] == [False] * 4 + [True]


@pytest.mark.contract("SD-06")
async def test_the_engine_has_all_requests_at_once(made: VllmBackend, llm: ScriptedLlm) -> None:
    """Of one call and of another: none waits for the end of those before it."""
    llm.steps = False
    streams = [await started(made) for _ in range(2)]
    streams += await made.execute([request(None, stream=True) for _ in range(6)])  # type: ignore[arg-type]
    await settle()
    assert len(llm.collectors) == len({each.request_id for each in llm.collectors}) == 8
    assert not any(stream.ended for stream in streams)


async def test_a_reader_that_falls_behind_gets_the_rest_together(made: VllmBackend) -> None:
    stream = await started(made)
    await until(lambda: stream.ended)
    assert texts(stream) == ["x", "xxxx"]


async def test_an_output_that_comes_while_the_request_is_added_is_not_lost(
    made: VllmBackend, llm: ScriptedLlm
) -> None:
    llm.early, llm.steps = llm.output(2), False
    stream = await started(made)
    assert texts(stream) == ["xx"]


@pytest.mark.parametrize("early", [True, False])
async def test_an_error_ends_the_stream_and_is_counted(
    made: VllmBackend, llm: ScriptedLlm, early: bool
) -> None:
    llm.early, llm.steps = InternalError("broken") if early else None, False
    stream = await started(made)
    if not early:
        llm.collectors[0].put(InternalError("broken"))
    with pytest.raises(InternalError, match="broken"):
        await anext(stream)
    assert made._engine.statistics.failed == 1
    assert made._engine.statistics.cancelled == 0


async def test_request_that_the_engine_ends_with_an_error_has_an_error(
    made: VllmBackend, llm: ScriptedLlm
) -> None:
    """vLLM says so by a finish reason alone, such as where it cannot compile a constraint."""
    llm.steps = False
    stream = await started(made)
    ended = llm.output(1, finished=True)
    ended.outputs[0].finish_reason = "error"
    llm.collectors[0].put(ended)
    with pytest.raises(
        InternalError, match=r"^Error generating stream: vLLM has ended the request"
    ):
        await anext(stream)
    assert made._engine.statistics.failed == 1


async def test_an_output_that_cannot_be_read_ends_its_request_in_the_engine(
    made: VllmBackend, llm: ScriptedLlm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock_backends.vllm.engine.translated", lambda e: InternalError(str(e)))
    monkeypatch.setattr("penstock_backends.vllm.engine.rejection_reason", lambda _: "")
    llm.steps = False
    stream = await started(made)
    llm.collectors[0].put(object())
    with pytest.raises(InternalError, match="has no attribute"):
        await anext(stream)
    await settle()
    assert llm.aborted == ["1"]


async def test_leaving_aborts_once_and_nothing_more_comes(
    made: VllmBackend, llm: ScriptedLlm
) -> None:
    llm.endless = True
    stream = await started(made)
    await anext(stream)
    stream.close()
    stream.close()
    llm.collectors[0].put(llm.output(1, finished=True))
    await settle()
    assert llm.aborted == ["1"]
    assert made._engine.statistics.cancelled == 1
    assert texts(stream) == []


async def begin_metered(
    made: VllmBackend, llm: ScriptedLlm
) -> tuple[ResponseStream, list[tuple[int, ...]]]:
    """A stream that the engine has and makes nothing for; and the reports of its tokens."""
    llm.steps = False
    told: list[tuple[int, ...]] = []
    asked = scoped(request(None, stream=True), report_usage=lambda *tokens: told.append(tokens))
    (stream,) = await made.execute([asked])
    assert isinstance(stream, ResponseStream)
    await settle()
    return stream, told


async def test_tokens_that_were_made_before_the_reader_left_are_reported(
    made: VllmBackend, llm: ScriptedLlm
) -> None:
    stream, told = await begin_metered(made, llm)
    for _ in range(3):
        llm.collectors[0].put(llm.output(1))
    stream.close()
    assert [generated for _, _, generated in told] == [1, 3]
    llm.collectors[0].put(llm.output(2))  # the engine has not heard yet
    assert told[-1][2] == 5


async def test_prompt_that_the_engine_never_began_is_not_reported(
    made: VllmBackend, llm: ScriptedLlm
) -> None:
    """vLLM puts an output for the abort itself, also of a request that waits there."""
    stream, told = await begin_metered(made, llm)
    stream.close()
    llm.collectors[0].put(llm.output(0, finished=True))
    assert told == []


async def test_who_leaves_before_the_engine_has_the_request_never_reaches_it(
    made: VllmBackend, llm: ScriptedLlm
) -> None:
    llm.render.clear()
    stream = await started(made)
    stream.close()
    llm.render.set()
    await settle()
    assert (llm.collectors, llm.aborted) == ([], [])


async def test_who_leaves_while_the_request_is_added_is_aborted_then(
    made: VllmBackend, llm: ScriptedLlm
) -> None:
    llm.admit.clear()
    stream = await started(made)
    stream.close()
    await settle()
    assert llm.aborted == []
    llm.admit.set()
    await settle()
    assert llm.aborted == ["1"]


async def test_a_dead_engine_is_asked_for_nothing(made: VllmBackend, llm: ScriptedLlm) -> None:
    llm.endless = True
    stream = await started(made)
    llm.errored = True
    stream.close()
    await settle()
    assert llm.aborted == []
    late = await started(made)
    with pytest.raises(UnavailableError):
        await anext(late)


async def test_more_tokens_than_the_context_has_are_refused(
    made: VllmBackend, llm: ScriptedLlm
) -> None:
    made._engine.facts = ModelFacts(context_length=1024)
    (outcome,) = await made.execute([request(None, stream=True, max_tokens=10**9)])
    assert isinstance(outcome, InvalidRequestError)
    assert "must be at most 1024, the model's context length, not 1000000000" in outcome.message
    assert llm.collectors == []
