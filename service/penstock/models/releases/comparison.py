"""Compares the answers of two models to one request: no state, no clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from penstock.core.errors import InferenceError
from penstock.core.request import InferenceResponse
from penstock.core.tensor import Array, DataType, Tensor
from penstock.models.releases.alias import Comparison

_SHOWN = 200
"""Bytes or characters of contents that are kept of each side."""


@dataclass(frozen=True, slots=True)
class Answer:
    """All responses of a model to a request, the error with which they ended, and the seconds."""

    responses: Sequence[InferenceResponse]
    error: InferenceError | None
    seconds: float

    @property
    def size(self) -> int:
        """Bytes of its tensors."""
        return sum(response.size for response in self.responses)


@dataclass(frozen=True, slots=True)
class Difference:
    """The first difference between two answers; `contents` are what each said, if asked for."""

    text: str
    contents: tuple[str, str] | None = None


def first_difference(first: Answer, second: Answer, how: Comparison) -> Difference | None:
    """What the second answer has otherwise than the first; `None` if they are equal.

    Streams are compared as a whole, however they are cut into responses: texts are joined.
    """
    if first.error is not None or second.error is not None:
        return _errors(first.error, second.error, how)
    ours, theirs = _outputs(first), _outputs(second)
    if missing := ours.keys() ^ theirs.keys():
        name = min(missing)
        who = "second" if name in ours else "first"
        return Difference(f"output '{name}' is missing in the {who} answer")
    streamed = len(first.responses) > 1 or len(second.responses) > 1
    for name, tensors in ours.items():
        found = _tensors(name, tensors, theirs[name], how, streamed)
        if found is not None:
            return found
    return None


def _errors(
    first: InferenceError | None, second: InferenceError | None, how: Comparison
) -> Difference | None:
    if first is not None and second is not None and first.code == second.code:
        return None
    told = [("was answered" if one is None else f"failed ({one.code})") for one in (first, second)]
    messages = ["" if one is None else one.message[:_SHOWN] for one in (first, second)]
    kept = (messages[0], messages[1]) if how.contents else None
    return Difference(f"the first {told[0]}, the second {told[1]}", kept)


def _outputs(answer: Answer) -> dict[str, list[Tensor]]:
    """The tensors of each output, in the order in which they came."""
    found: dict[str, list[Tensor]] = {}
    for response in answer.responses:
        for name, tensor in response.outputs.items():
            found.setdefault(name, []).append(tensor)
    return found


def _tensors(
    name: str, ours: list[Tensor], theirs: list[Tensor], how: Comparison, streamed: bool
) -> Difference | None:
    types = ours[0].datatype, theirs[0].datatype
    if types[0] is not types[1]:
        return Difference(
            f"output '{name}' is {types[0]} in the first answer, {types[1]} in the other"
        )
    if not streamed and ours[0].shape != theirs[0].shape:
        shapes = [list(ours[0].shape), list(theirs[0].shape)]
        return Difference(f"output '{name}' has shape {shapes[0]} in the first answer, {shapes[1]}")
    if types[0] is DataType.BYTES:
        return _texts(name, _elements(ours, streamed), _elements(theirs, streamed), how)
    if name in how.labels:
        return _labels(name, ours, theirs, how)
    return _numbers(name, _flat(ours), _flat(theirs), how)


def _elements(tensors: list[Tensor], streamed: bool) -> list[bytes]:
    found = [bytes(each) for tensor in tensors for each in tensor.elements()]
    return [b"".join(found)] if streamed else found


def _texts(name: str, ours: list[bytes], theirs: list[bytes], how: Comparison) -> Difference | None:
    for place, (one, other) in enumerate(zip(ours, theirs, strict=True)):
        if one != other:
            pairs = enumerate(zip(one, other, strict=False))
            alike = next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))
            kept = (_shown(one), _shown(other)) if how.contents else None
            where = f"text {place + 1} of {len(ours)}" if len(ours) > 1 else "the text"
            return Difference(
                f"output '{name}': {where} is equal for the first {alike} bytes of"
                f" {len(one)} and {len(other)}",
                kept,
            )
    return None


def _numbers(name: str, ours: Array, theirs: Array, how: Comparison) -> Difference | None:
    if len(ours) != len(theirs):
        return Difference(
            f"output '{name}' has {len(ours)} elements in the first answer,"
            f" {len(theirs)} in the other"
        )
    with np.errstate(all="ignore"):
        near = np.isclose(
            theirs.astype(np.float64), ours.astype(np.float64), how.rtol, how.atol, equal_nan=True
        )
    wrong = np.flatnonzero(~(near | (ours == theirs)))
    if not len(wrong):
        return None
    place = int(wrong[0])
    kept = (str(ours[place]), str(theirs[place])) if how.contents else None
    return Difference(
        f"output '{name}': {len(wrong)} of {len(ours)} elements differ, the first is"
        f" number {place + 1}",
        kept,
    )


def _labels(
    name: str, ours: list[Tensor], theirs: list[Tensor], how: Comparison
) -> Difference | None:
    """Compares the places of the largest numbers, along the last dimension."""
    for place, (one, other) in enumerate(zip(map(_best, ours), map(_best, theirs), strict=False)):
        if one.shape != other.shape or bool((one != other).any()):
            kept = (str(one)[:_SHOWN], str(other)[:_SHOWN]) if how.contents else None
            return Difference(f"output '{name}': the label of response {place + 1} differs", kept)
    if len(ours) != len(theirs):
        return Difference(f"output '{name}' has {len(ours)} and {len(theirs)} labels")
    return None


def _best(tensor: Tensor) -> Array:
    array = _values(tensor)
    if not array.size or not array.ndim:
        return np.zeros(0, np.int64)
    return np.asarray(array.argmax(axis=-1))


def _flat(tensors: list[Tensor]) -> Array:
    return np.concatenate([_values(tensor).reshape(-1) for tensor in tensors])


def _values(tensor: Tensor) -> Array:
    array = tensor.numpy()
    if tensor.datatype is DataType.BF16:
        return (array.astype(np.uint32) << 16).view(np.float32)
    return array


def _shown(text: bytes) -> str:
    return text[:_SHOWN].decode("utf-8", "replace")
