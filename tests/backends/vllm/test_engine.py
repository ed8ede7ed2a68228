"""`VllmEngine`: which of vLLM's methods it asks, and with what."""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from backends.vllm.scripted import ScriptedLlm, vllm
from penstock_backends.vllm.inputs.request_options import RequestOptions

OPTIONS = RequestOptions(priority=3, session_id="s", data_parallel_rank=1)


class Noting(ScriptedLlm):
    """Answers with one output, and notes how it was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[str, Any]] = []

    def generate(self, *_: Any, **given: Any) -> AsyncIterator[Any]:
        return self._noted("generate", given)

    def encode(self, *_: Any, **given: Any) -> AsyncIterator[Any]:
        return self._noted("encode", given)

    async def _noted(self, name: str, given: Any) -> AsyncIterator[Any]:
        self.asked.append((name, given))
        yield self.output(1, finished=True)


@pytest.mark.parametrize(
    ("params", "method", "options"),
    [
        (
            SimpleNamespace(max_tokens=1),
            "generate",
            {"priority": 3, "session_id": "s", "data_parallel_rank": 1},
        ),
        (SimpleNamespace(), "encode", {"priority": 3}),
    ],
    ids=["text", "vectors"],
)
async def test_text_is_generated_and_vectors_are_encoded(
    monkeypatch: pytest.MonkeyPatch, params: Any, method: str, options: dict[str, Any]
) -> None:
    llm = Noting()
    engine = vllm(monkeypatch, llm)._engine
    outputs = [one async for one in engine.generate({"prompt": "a"}, params, None, OPTIONS)]
    assert [one.finished for one in outputs] == [True]
    assert llm.asked == [(method, {"lora_request": None, "trace_headers": None, **options})]
