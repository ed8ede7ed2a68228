"""Batch forming: which of the first requests of a queue make a batch (contract D-03 to D-06).

By signature (D-06, D-07, C-12, C-13), size, and length.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf, prod
from typing import Generic, TypeVar

from penstock.core.config import ModelConfig, ModelInput
from penstock.core.errors import ConfigError
from penstock.core.request import InferenceRequest
from penstock.core.tensor import DataType, Tensor
from penstock.scheduling.batching.priority_queue import Entry

T = TypeVar("T")

_LOOK_AHEAD = 8
"""How much of the queue is searched for the batch of a length bucket, in largest batches."""


@dataclass(frozen=True, slots=True)
class BatchPolicy:
    """Limits of the batch size, and the queue delay of the oldest request.

    Sizes are in batch rows; the delay is in seconds. No preferred sizes means `max_batch_size`.
    `max_elements` bounds rows times the longest request, or, where requests are not `padded` to
    one length, the sum of their elements; 0 is no bound. `buckets` are rising upper bounds of
    lengths; the requests of a batch are of one bucket.
    """

    max_batch_size: int
    preferred: frozenset[int] = frozenset()
    max_queue_delay: float = 0.0
    max_elements: int = 0
    padded: bool = True
    buckets: tuple[int, ...] = ()
    sizes: frozenset[int] = field(init=False)
    largest: int = field(init=False)

    def __post_init__(self) -> None:
        # `sizes` leave at once when they can be formed; `largest` is worth waiting for.
        sizes = self.preferred or frozenset((self.max_batch_size,))
        object.__setattr__(self, "sizes", sizes)
        object.__setattr__(self, "largest", max(sizes))


class FormingBatch(Generic[T]):
    """A batch in forming: the entries of a queue are added in order, until it is `closed`."""

    __slots__ = (
        "_best",
        "_elements",
        "_longest",
        "_policy",
        "_rows",
        "_since",
        "closed",
        "entries",
    )

    def __init__(self, policy: BatchPolicy) -> None:
        self._policy = policy
        self.entries: list[Entry[T]] = []
        self.closed = False
        self._since = inf
        self._rows = self._longest = self._elements = 0
        self._best = 0

    def due(self) -> float:
        """The latest time to execute it: `-inf` for at once, `inf` for never.

        The queue delay is for less than the largest preferred size (D-05).
        """
        if self.closed or self._best or self._rows >= self._policy.largest:
            return -inf
        return self._since + self._policy.max_queue_delay

    def chosen(self, now: float) -> list[Entry[T]]:
        """The entries to execute: the largest preferred size, or, once overdue, all that fit."""
        delay = self._policy.max_queue_delay
        overdue = delay > 0.0 and now >= self._since + delay
        return self.entries if overdue or not self._best else self.entries[: self._best]

    def add(self, entry: Entry[T]) -> None:
        """Add the next entry of the queue, or close the batch if it does not fit."""
        if self.entries and self._exceeds(entry):
            self.closed = True
        else:
            self._append(entry)

    def _exceeds(self, entry: Entry[T]) -> bool:
        policy, rows = self._policy, self._rows + entry.rows
        if rows > policy.largest and not self._best:
            self._best = len(self.entries)  # beyond every preferred size
        if rows > policy.max_batch_size or entry.signature != self.entries[0].signature:
            return True
        return policy.max_elements > 0 and self._cost_with(entry) > policy.max_elements

    def _append(self, entry: Entry[T]) -> None:
        policy = self._policy
        self.entries.append(entry)
        self._rows += entry.rows
        if entry.since < self._since:
            self._since = entry.since
        if self._rows in policy.sizes:
            self._best = len(self.entries)
        self.closed = self._rows >= policy.max_batch_size
        if policy.max_elements:
            self._longest = max(self._longest, entry.length)
            self._elements += entry.rows * entry.length
            self.closed |= self._cost >= policy.max_elements

    @property
    def _cost(self) -> int:
        return self._rows * self._longest if self._policy.padded else self._elements

    def _cost_with(self, entry: Entry[T]) -> int:
        if self._policy.padded:
            return (self._rows + entry.rows) * max(self._longest, entry.length)
        return self._elements + entry.rows * entry.length


class BucketedBatches(Generic[T]):
    """Batches in forming by length bucket, in the order of the buckets' first entries.

    The first batch that is due is chosen. An overdue one is, so the oldest request waits no longer
    than the queue delay.
    """

    def __init__(self, policy: BatchPolicy) -> None:
        self._policy = policy
        self._by_bucket: dict[int, FormingBatch[T]] = {}
        self._room = _LOOK_AHEAD * policy.max_batch_size
        self.closed = False

    def due(self) -> float:
        """The latest time to execute the first of them."""
        return min((forming.due() for forming in self._by_bucket.values()), default=inf)

    def chosen(self, now: float) -> list[Entry[T]]:
        """The entries to execute."""
        due = (forming for forming in self._by_bucket.values() if forming.due() <= now)
        first = next(due, None) or next(iter(self._by_bucket.values()), None)
        return [] if first is None else first.chosen(now)

    def add(self, entry: Entry[T]) -> None:
        """Add the next entry of the queue to the batch of its bucket, unless that is full."""
        forming = self._by_bucket.get(entry.bucket)
        if forming is None:
            forming = self._by_bucket[entry.bucket] = FormingBatch(self._policy)
        if not forming.closed:
            forming.add(entry)
        self._room -= 1
        self.closed = self._room <= 0


Signature = Callable[[InferenceRequest], Hashable]
"""Computes a key that is equal for all requests of one batch."""


def signature_for(config: ModelConfig) -> Signature:
    """The cheapest signature that separates requests which must not share a batch.

    Inputs of fixed shape are equal in all requests, ragged ones may differ.
    """
    compared = [tensor for tensor in config.input if _varies(tensor)]
    contents = frozenset(tensor.name for tensor in config.input if tensor.is_shape_tensor)
    if any(tensor.optional for tensor in config.input):
        return _signature_of_present(frozenset(t.name for t in compared), contents)
    if contents:
        return _signature_of_contents([tensor.name for tensor in compared], contents)
    return (
        _signature_of_shapes([tensor.name for tensor in compared]) if compared else _same_signature
    )


def _varies(tensor: ModelInput) -> bool:
    return tensor.is_shape_tensor or (not tensor.allow_ragged_batch and -1 in tensor.dims)


def _same_signature(_: InferenceRequest) -> Hashable:
    return None


def _signature_of_shapes(names: Sequence[str]) -> Signature:
    if len(names) == 1:
        (name,) = names
        return lambda request: request.inputs[name].shape[1:]
    return lambda request: tuple(request.inputs[name].shape[1:] for name in names)


def _signature_of_contents(names: Sequence[str], contents: frozenset[str]) -> Signature:
    def signature(request: InferenceRequest) -> Hashable:
        return tuple(_compared(request.inputs[name], name in contents) for name in names)

    return signature


def _signature_of_present(names: frozenset[str], contents: frozenset[str]) -> Signature:
    def signature(request: InferenceRequest) -> Hashable:
        return frozenset(
            (name, _compared(tensor, name in contents) if name in names else None)
            for name, tensor in request.inputs.items()
        )

    return signature


def _compared(tensor: Tensor, contents: bool) -> Hashable:
    """The shape of a row; for a shape tensor, which is equal in all rows, its values too."""
    shape = tensor.shape[1:]
    return (shape, tensor.numpy()[:1].tobytes()) if contents else shape


def length(request: InferenceRequest) -> int:
    """Elements per row of the longest input; for strings, bytes, averaged over the rows."""
    return max((_row_length(tensor) for tensor in request.inputs.values()), default=0)


def _row_length(tensor: Tensor) -> int:
    if tensor.datatype is not DataType.BYTES:
        return prod(tensor.shape[1:])
    rows = max(tensor.shape[0], 1)
    return max(0, tensor.nbytes - 4 * prod(tensor.shape)) // rows


MAX_ELEMENTS = "penstock.max_batch_elements"
BUCKETS = "penstock.length_buckets"
PADDING = "penstock.padding"
_UNKNOWN_STRATEGY = "TRITON_BATCH_STRATEGY_PATH"


@dataclass(frozen=True, slots=True)
class LengthBatching:
    """Batching by length; 0 and empty mean that lengths do not count.

    `max_elements` bounds a batch; `buckets` are rising upper bounds of lengths, and the requests of
    a batch are of one bucket. `padded` says that the model gets rows of one length.
    """

    max_elements: int = 0
    buckets: tuple[int, ...] = ()
    padded: bool = True

    @classmethod
    def from_config(cls, config: ModelConfig) -> LengthBatching:
        """Read the parameters; raises `ConfigError` for invalid ones."""
        _refuse_unusable(config)
        text = config.parameter(MAX_ELEMENTS)
        ragged = any(tensor.allow_ragged_batch for tensor in config.input)
        return cls(
            max_elements=_positive(MAX_ELEMENTS, text) if text is not None else 0,
            buckets=_bounds(config.parameter(BUCKETS)),
            padded=not ragged or config.parameter(PADDING) is not None,
        )


def _refuse_unusable(config: ModelConfig) -> None:
    if config.dynamic_batching is None:
        for name in (MAX_ELEMENTS, BUCKETS):
            if config.parameter(name) is not None:
                raise ConfigError(f"parameter '{name}' needs dynamic_batching")
    if config.parameter(_UNKNOWN_STRATEGY) is not None:
        raise ConfigError(
            f"parameter '{_UNKNOWN_STRATEGY}' names a library for another server's interface, "
            f"which cannot be used here; '{MAX_ELEMENTS}' bounds batches by their elements"
        )


def _bounds(text: str | None) -> tuple[int, ...]:
    if text is None:
        return ()
    bounds = tuple(_positive(BUCKETS, part.strip()) for part in text.split(","))
    if any(low >= high for low, high in pairwise(bounds)):
        raise ConfigError(f"parameter '{BUCKETS}' must be rising numbers, got '{text}'")
    return bounds


def _positive(name: str, text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or not int(text):
        raise ConfigError(f"parameter '{name}' must be a number above 0, got '{text}'")
    return int(text)
