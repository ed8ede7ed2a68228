"""Requests that no engine can serve are refused, and nobody else notices."""

from __future__ import annotations

import re
import threading
from typing import Any

import numpy as np
import pytest

from conformance.language_models.asking import PROMPT, Asked, Reply

GREEDY = {"temperature": 0, "ignore_eos": True}


def ids(*tokens: int) -> Any:
    return np.array(tokens, np.int32)


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "both prompts": ({"input_ids": ids(1)}, "has two prompts"),
    "no prompt": ({"prompt": None}, "no prompt: give input 'text_input' or input 'input_ids'"),
    "ids out of range": (
        {"prompt": None, "input_ids": ids(5, 1 << 30)},
        "holds 1073741824, but the model's token ids are 0 to 4095",
    ),
    "negative ids": ({"prompt": None, "input_ids": ids(-5)}, "holds -5, but the model's token ids"),
    "many ids": ({"prompt": None, "input_ids": ids(*[1] * 10**6)}, "has 1000000 tokens, but the"),
    "10 MB": ({"prompt": "x" * 10_000_000}, "10000000 characters"),
    "too long": ({"prompt": "word " * 1500}, "context length"),
    "no tokens": ({"sampling": {"max_tokens": 0}}, "max_tokens"),
    "a million texts": ({"sampling": {"n": 10**6}}, "'?n'? must be at most"),
    "ten thousand texts": ({"sampling": {"n": 10**4}}, "'?n'? must be at most"),
    "a million logprobs": ({"sampling": {"temperature": 0, "logprobs": 10**6}}, "logprobs"),
    "less than no texts": ({"sampling": {"n": -1}}, "'?n'? must be"),
    "an adapter by its path": (
        {"sampling": {"lora_name": "../x"}},
        "'lora_name' is not supported by|LoRA",
    ),
    "an adapter by an absolute path": ({"sampling": {"lora_name": "/etc"}}, "lora_name|LoRA"),
    "what nobody knows": ({"sampling": {"max_tokenz": 1}}, "'max_tokenz' is not supported by"),
    "a grammar that explodes": (
        {"sampling": {"structured_outputs": {"regex": "((a{1,100}){1,100}){1,100}"}}},
        "sampling parameter 'structured_outputs'",
    ),
    "too many choices": (
        {"sampling": {"structured_outputs": {"choice": [str(n) for n in range(20_000)]}}},
        "sampling parameter 'structured_outputs'",
    ),
    "a schema that explodes": (
        {"sampling": {"structured_outputs": {"json": "[" * 50_000}}},
        "structured_outputs|JSON|json",
    ),
    "a grammar of half a megabyte": (
        {"sampling": {"structured_outputs": {"grammar": 'root ::= "a"\n' * 40_000}}},
        "structured_outputs",
    ),
    "a malformed grammar": (
        {"sampling": {"structured_outputs": {"regex": "[0-"}}},
        "regex|structured_outputs",
    ),
    "a thousand stop strings": (
        {"sampling": {"stop": [str(number) for number in range(1000)]}},
        "sampling parameter 'stop' must hold at most 256 strings, not 1000",
    ),
    "a stop string of a megabyte": (
        {"sampling": {"stop": "x" * 10**6}},
        "sampling parameter 'stop' must have at most 16384 characters together, not 1000000",
    ),
    "transfer parameters that nest": (
        {"sampling": {"kv_transfer_params": "[" * 100_000}},
        "sampling parameter 'kv_transfer_params'",
    ),
    "json that is none": ({"sampling_parameters": "{"}, "'sampling_parameters' is not JSON"),
    "a repeated prompt": (
        {"stream": True, "exclude_input_in_output": False},
        "^Error generating stream: When streaming, `exclude_input_in_output` = False is not",
    ),
}


@pytest.mark.parametrize("case", list(BAD))
def test_bad_input_is_refused_beside_a_stream_that_goes_on(asked: Asked, case: str) -> None:
    inputs, why = BAD[case]
    alone = asked.ask(sampling=GREEDY | {"max_tokens": 64}, stream=True)
    beside: list[Reply] = []

    def stream() -> None:
        beside.append(asked.ask(sampling=GREEDY | {"max_tokens": 64}, stream=True))

    thread = threading.Thread(target=stream)
    thread.start()
    refused = asked.ask(**{"prompt": PROMPT, **inputs})
    thread.join()
    assert refused.error is not None
    assert refused.responses == []
    assert re.search(why, refused.error), refused.error
    assert [reply.text for reply in beside] == [alone.text]
    assert beside[0].error is None


def test_more_tokens_than_fit_end_with_the_context(asked: Asked) -> None:
    wanted: Any = {"return_finish_reason": True, "return_num_output_tokens": True}
    reply = asked.ask(sampling=GREEDY | {"max_tokens": 1024}, **wanted)
    assert reply.all("finish_reason") == ["length"]
    assert 1000 < reply.all("num_output_tokens")[0] < 1024


def test_more_tokens_than_the_context_has_are_refused(asked: Asked) -> None:
    refused = asked.ask(sampling=GREEDY | {"max_tokens": 10**9})
    assert refused.responses == []
    assert "must be at most 1024, the model's context length, not 1000000000" in (
        refused.error or ""
    )


MEDIA: dict[str, dict[str, Any]] = {
    "image": {"image": "iVBORw0KGgo="},
    "image_url": {"image_url": "http://127.0.0.1:9/never"},
    "audio": {"audio": "https://10.0.0.1/"},
    "video": {"video": "data:video/mp4;base64,AAAA"},
}


@pytest.mark.parametrize("name", list(MEDIA))
def test_media_for_a_model_that_takes_none_are_refused_by_name(asked: Asked, name: str) -> None:
    error = asked.ask(**MEDIA[name]).error
    if asked.engine == "vllm":
        assert error is not None
        assert f"input '{name}': model m takes no {name.removesuffix('_url')}" in error
    else:
        assert error is not None
        assert f"unexpected inference input '{name}' for model 'm'" in error
