"""The tiny language model: the file the engine reads against the weights it was made from."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from demo.llama_reference import LlamaReference
from penstock.demo.language_model import CHECKPOINT

tokenizers = pytest.importorskip("tokenizers")
_PROMPTS = [
    "The file is",
    "What is a list?",
    "<|user|>What is a generator?<|assistant|>",
    "If the value is not a string,",
    "Return",
    "<|user|>Hello<|assistant|>",
]

Greedy = Callable[[str, int], list[int]]


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return tokenizers.Tokenizer.from_file(str(CHECKPOINT / "tokenizer.json"))


@pytest.fixture(scope="module")
def engine(demo_repository: Path, tokenizer: Any) -> Greedy:
    openvino = pytest.importorskip("openvino")
    genai = pytest.importorskip("openvino_genai")
    version = demo_repository / "tiny_llm" / "1"
    settings = json.loads((version / "model.json").read_text())
    limits = genai.SchedulerConfig()
    limits.num_kv_blocks = settings["num_kv_blocks"]
    pipeline = genai.ContinuousBatchingPipeline(
        str(version / settings["model"]), limits, "CPU", settings["properties"]
    )

    def generate(prompt: str, count: int) -> list[int]:
        config = genai.GenerationConfig()
        config.apply_chat_template = False
        config.max_new_tokens = count
        ids = np.array([tokenizer.encode(prompt).ids], np.int64)
        (result,) = pipeline.generate([openvino.Tensor(ids)], [config])
        return list(result.m_generation_ids[0])

    return generate


@pytest.mark.parametrize("prompt", _PROMPTS)
def test_the_engine_agrees_with_the_weights(engine: Greedy, tokenizer: Any, prompt: str) -> None:
    reference = LlamaReference(CHECKPOINT)
    assert engine(prompt, 24) == reference.greedy(tokenizer.encode(prompt).ids, 24)


@pytest.mark.parametrize("prompt", ["What is a list?", "<|user|>What is a list?<|assistant|>"])
def test_an_answer_makes_sense_and_ends(engine: Greedy, tokenizer: Any, prompt: str) -> None:
    answer = engine(prompt, 200)
    assert "ordered collection" in tokenizer.decode(answer)
    assert answer[-1] == tokenizer.token_to_id("<|end|>")
