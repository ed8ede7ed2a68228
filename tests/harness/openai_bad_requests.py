"""Requests to OpenAI's API that are wrong or meant to harm, for servers with any engine."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import httpx

CHAT, COMPLETIONS, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/responses"
HELLO: Any = [{"role": "user", "content": "How do I open a file?"}]
PART = {"type": "text", "text": "a"}
TOOL_RESULT = {"role": "tool", "tool_call_id": "9", "content": "x"}
ITSELF = {"$defs": {"a": {"items": {"$ref": "#/$defs/a"}}}, "$ref": "#/$defs/a"}

JSON = {"content-type": "application/json"}

Ask = tuple[str, bytes]
"""A path and a body."""


def chat(**fields: Any) -> bytes:
    return json.dumps({"model": "tiny_llm", "messages": HELLO, "max_tokens": 4, **fields}).encode()


def said(*content: Any, role: str = "user") -> bytes:
    return chat(messages=[{"role": role, "content": [*content]}])


def image(url: str) -> bytes:
    return said({"type": "image_url", "image_url": {"url": url}})


def form(schema: Any) -> bytes:
    named = {"name": "n", "schema": schema}
    return chat(response_format={"type": "json_schema", "json_schema": named})


def structured(**how: Any) -> bytes:
    return chat(structured_outputs=how)


def complete(prompt: Any) -> bytes:
    return json.dumps({"model": "tiny_llm", "prompt": prompt}).encode()


def embed(given: Any) -> bytes:
    return json.dumps({"model": "minilm", "input": given}).encode()


def inserted(text: bytes) -> bytes:
    """A chat with a further member, as it stands there."""
    return chat()[:-1] + b"," + text + b"}"


@contextmanager
def others(http: httpx.Client, *asked: Ask) -> Iterator[None]:
    """Clients that ask these meanwhile; each gets the same answer every time."""
    stop = threading.Event()

    def ask(path: str, body: bytes) -> set[str]:
        found = set()
        while not stop.is_set():
            answer = http.post(path, content=body, headers=JSON)
            assert answer.status_code == 200, answer.text
            choices = answer.json().get("choices") or answer.json()["data"]
            found.add(json.dumps(choices))
        return found

    with ThreadPoolExecutor(len(asked)) as threads:
        running: list[Future[set[str]]] = [threads.submit(ask, *one) for one in asked]
        try:
            yield
        finally:
            stop.set()
        assert [len(one.result()) for one in running] == [1] * len(asked)


BAD = {
    "body of 64 MiB": (CHAT, said({**PART, "text": "a" * (64 << 20)}), 413),
    "body that a model does not read": (CHAT, said({**PART, "text": "a" * (20 << 20)}), 413),
    "data of 100 MB": (CHAT, image("data:image/png;base64," + "A" * 100_000_000), 413),
    "JSON 10,000 deep": (CHAT, inserted(b'"x":' + b"[" * 10_000 + b"]" * 10_000), 400),
    "JSON that ends early": (CHAT, chat()[:-1], 400),
    "no messages": (CHAT, chat(messages=[]), 400),
    "message without content": (CHAT, chat(messages=[{"role": "user"}]), 400),
    "100,000 parts": (CHAT, said(*[PART] * 100_000), 413),
    "20,000 parts": (CHAT, said(*[PART] * 20_000), 400),
    "100,000 parts of no kind": (CHAT, said(*[{}] * 100_000), 400),
    "100,000 stops that are no texts": (CHAT, chat(stop=[5] * 100_000), 400),
    "a million token ids and a text": (COMPLETIONS, complete([*[5] * 1_000_000, "a"]), 413),
    "100,000 token ids and a text": (COMPLETIONS, complete([*[5] * 100_000, "a"]), 400),
    "100,000 prompts": (COMPLETIONS, complete(["a"] * 100_000), 400),
    "text of 8 MB to tokenize": ("/tokenize", complete("a " * (4 << 20)), 413),
    "10,000 messages": (CHAT, chat(messages=HELLO * 10_000), 400),
    "unknown role": (CHAT, said(PART, role="king"), 400),
    "result of no call": (CHAT, chat(messages=[TOOL_RESULT]), 400),
    "schema that refers to itself": (CHAT, form(ITSELF), 400),
    "property with a quote": (CHAT, form({"properties": {'a"b': {"type": "null"}}}), 400),
    "property with a line end": (CHAT, form({"properties": {"a\n": {"type": "null"}}}), 400),
    "100,000 values": (CHAT, form({"enum": [*range(100_000)]}), 400),
    "100,000 choices": (CHAT, structured(choice=[str(n) for n in range(100_000)]), 400),
    "nested repetitions": (CHAT, structured(regex="(a{1,100}){1,100}"), 400),
    "repetition of what may be empty": (CHAT, structured(regex="((aa|a)*)*b?"), 400),
    "repetition of 99,999": (CHAT, structured(regex="a{99999}"), 400),
    "regex in a schema": (CHAT, form({"type": "string", "pattern": "((x{1,99}){1,99})+"}), 400),
    "template": (CHAT, chat(chat_template="{{ ''.__class__ }}"), 400),
    "link-local image": (CHAT, image("http://169.254.169.254/latest/meta-data"), 400),
    "image of a file": (CHAT, image("file:///etc/passwd"), 400),
    "options of no stream": (CHAT, chat(stream_options={"include_usage": True}), 400),
    "a million logprobs": (CHAT, chat(logprobs=True, top_logprobs=10**6), 400),
    "a million answers": (CHAT, chat(n=10**6, temperature=1), 400),
    "not a number": (CHAT, inserted(b'"temperature":NaN'), 400),
    "bias that is not a number": (CHAT, inserted(b'"logit_bias":{"5":NaN}'), 400),
    "infinity": (CHAT, inserted(b'"temperature":1e999'), 400),
    "lone surrogate": (CHAT, inserted(b'"user":"\\ud800"'), 400),
    "no UTF-8": (CHAT, inserted(b'"user":"\xff"'), 400),
    "number of 100,000 digits": (CHAT, inserted(b'"seed":' + b"9" * 100_000), 400),
    "two models": (CHAT, inserted(b'"model":"minilm"'), 400),
    "100,000 texts": ("/v1/embeddings", embed(["a"] * 100_000), 400),
    "two million characters": ("/v1/embeddings", embed("a " * 1_000_000), 400),
    "5,000 items of no kind": (
        RESPONSES,
        json.dumps({"model": "tiny_llm", "input": [{}] * 5000}).encode(),
        400,
    ),
    "items that nobody knows": (
        RESPONSES,
        b'{"model": "tiny_llm", "input": [{"id": "x"}, {"type": "mcp_call"}]}',
        400,
    ),
}
"""Path, body and status by what is wrong, with the demo's models `tiny_llm` and `minilm`."""
