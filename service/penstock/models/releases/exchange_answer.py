"""Reads the answers of models' own applications as outputs, so that two of them can be compared.

What OpenAI's API and its kin answer has ids, times and counts that differ with each answer, and
streams are cut as their engines please. Read is what the model has said: texts, which are joined
over the events of a stream, words of which the last one counts, and numbers.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import numpy as np

from penstock.core.request import ExchangePart, InferenceResponse
from penstock.core.tensor import Array, Tensor
from penstock.models.releases.comparison import Answer

_INSIDE = frozenset(
    (
        *("choices", "message", "delta", "tool_calls", "function", "function_call"),
        *("data", "results", "content", "content_block"),
    )
)
"""Members that are looked into."""
_TEXTS = frozenset(
    (
        *("content", "text", "reasoning_content", "reasoning", "refusal", "thinking"),
        *("arguments", "partial_json"),
    )
)
_WORDS = frozenset(("name", "finish_reason", "stop_reason", "label", "input", "prompt"))
_NUMBERS = frozenset(
    (
        *("embedding", "data", "score", "relevance_score", "probs"),
        *("tokens", "token_ids", "input_tokens"),
    )
)
_BODY = "body"


def as_outputs(answer: Answer) -> Answer:
    """An answer over HTTP as one response with outputs, such as `choices[0].message.content`.

    One in which nothing is known, as an audio file, has its body as a whole. An answer with tensors
    stays as it is.
    """
    parts = [one for one in answer.responses if isinstance(one, ExchangePart)]
    if not parts:
        return answer
    body = b"".join(part.body for part in parts)
    found = _Reading()
    try:
        for document in _documents(parts[0], body):
            found.add("", document)
        outputs = found.outputs()
    except (ValueError, TypeError, RecursionError):  # no JSON, or numbers that are none
        outputs = {}
    if not outputs:
        outputs = {_BODY: Tensor.from_strings([body])}
    return Answer([InferenceResponse(outputs, final=True)], answer.error, answer.seconds)


def _documents(first: ExchangePart, body: bytes) -> Iterator[Any]:
    """The JSON of a body: of a stream of events, that of each."""
    headers = () if first.head is None else first.head.headers
    kind = next((value for name, value in headers if name.lower() == "content-type"), "")
    if not kind.lower().startswith("text/event-stream"):
        yield json.loads(body)
        return
    for event in body.replace(b"\r\n", b"\n").split(b"\n\n"):
        lines = [line[5:].strip() for line in event.split(b"\n") if line.startswith(b"data:")]
        data = b"\n".join(lines)
        if data and data != b"[DONE]":
            yield json.loads(data)


class _Reading:
    """Texts, words and numbers that were read so far, by their places."""

    def __init__(self) -> None:
        self._texts: dict[str, list[str]] = {}
        self._words: dict[str, str] = {}
        self._numbers: dict[str, list[Array]] = {}

    def outputs(self) -> dict[str, Tensor]:
        """A tensor for each place."""
        texts = {place: "".join(parts) for place, parts in self._texts.items()}
        found = {
            place: Tensor.from_strings([text.encode("utf-8", "surrogatepass")])
            for place, text in {**texts, **self._words}.items()
        }
        return found | {
            place: Tensor.from_numpy(np.concatenate(parts))
            for place, parts in self._numbers.items()
        }

    def add(self, place: str, value: Any) -> None:
        """Read the members of an object, or the items of a list, by their own `index`."""
        if isinstance(value, list):
            for number, item in enumerate(value):
                index = item.get("index", number) if isinstance(item, dict) else number
                self.add(f"{place}[{index}]", item)
        elif isinstance(value, dict):
            for name, member in value.items():
                self._add_member(f"{place}.{name}" if place else str(name), name, member)

    def _add_member(self, place: str, name: str, value: Any) -> None:
        if value is None:
            return
        if name in _TEXTS and isinstance(value, str):
            self._texts.setdefault(place, []).append(value)
        elif name in _WORDS:
            self._words[place] = value if isinstance(value, str) else json.dumps(value)
        elif name in _INSIDE and _has_objects(value):
            self.add(place, value)
        elif name in _NUMBERS:
            self._numbers.setdefault(place, []).append(_numbers(value))


def _has_objects(value: Any) -> bool:
    items = value if isinstance(value, list) else [value]
    return bool(items) and all(isinstance(item, dict) for item in items)


def _numbers(value: Any) -> Array:
    """Numbers, or those that a text has in base 64, as embeddings come; raises `ValueError`."""
    if isinstance(value, str):
        return np.frombuffer(base64.b64decode(value), "<f4").astype(np.float64)
    return np.asarray(value, np.float64).reshape(-1)
