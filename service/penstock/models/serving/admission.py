"""Admission of requests: validation against the model's configuration, once, before scheduling.

Messages and order of checks are Triton's; inputs are checked last to first, as there. What a
request asks of its answer is read here too: the client's shapes (V-13, C-10), classes of an output.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from penstock.core.call_chain import Candidates, NestedCall, Wait, find_cycle
from penstock.core.config import ModelConfig, ModelInput
from penstock.core.errors import (
    InferenceError,
    InternalError,
    InvalidRequestError,
    UnsupportedError,
    request_prefix,
    shortened,
)
from penstock.core.request import InferenceRequest, InferenceResponse
from penstock.core.tensor import Array, CutLengthError, DataType, Tensor, count_elements
from penstock.inflight.statistics import Transform

_BATCH_NOTE = (
    "NOTE: Setting a non-zero max_batch_size in the model config requires a batch dimension to be "
    "prepended to each input shape. If you want to specify the full shape including the batch dim "
    "in your input dims config, try setting max_batch_size to zero. See the model configuration "
    "docs for more info on max_batch_size."
)
_MAX_CACHED = 256
"""Request forms whose check is cached."""


class Admission:
    """The request checks of one model, prepared from its configuration.

    Where no check depends on the contents of tensors, each request template is checked once.
    """

    def __init__(self, config: ModelConfig) -> None:
        self._model = config.name
        self._max_batch_size = config.max_batch_size
        self._inputs = {tensor.name: tensor for tensor in config.input}
        self._required = [tensor.name for tensor in config.input if not tensor.optional]
        self._outputs = frozenset(tensor.name for tensor in config.output)
        self._reads_contents = any(t.data_type is DataType.BYTES for t in config.input)
        self._shape_tensors = _shape_tensors(config)
        self._rows_by_template: dict[Hashable, int] = {}

    def check(self, request: InferenceRequest) -> int:
        """The number of batch rows of a valid request; raises `InvalidRequestError` otherwise."""
        template = request.template
        if template is None:
            return self._check(request)
        rows = self._rows_by_template.get(template)
        if rows is None:
            rows = self._check(request)
            if not self._reads_contents:
                if len(self._rows_by_template) >= _MAX_CACHED:
                    self._rows_by_template.clear()
                self._rows_by_template[template] = rows
        return rows

    def _check(self, request: InferenceRequest) -> int:
        for name in request.requested_outputs:
            if name not in self._outputs:
                raise InvalidRequestError(
                    f"unexpected inference output '{shortened(name)}' for model '{self._model}'"
                )
        self._check_count(request)
        rows = self._check_batch(request) if self._max_batch_size else 1
        for name, tensor in _last_first(request):
            self._check_input(request, name, tensor)
        return rows

    def _check_count(self, request: InferenceRequest) -> None:
        given, total, required = len(request.inputs), len(self._inputs), len(self._required)
        if required <= given <= total:
            return
        if required == total:
            counts = f"expected {total} inputs but got {given} inputs"
        else:
            counts = (
                f"expected number of inputs between {required} and {total} but got {given} inputs"
            )
        missing = [name for name in self._required if name not in request.inputs]
        names = (name for name, _ in _last_first(request))
        raise _refused(
            request,
            f"{counts} for model '{self._model}'. Got input(s) [{shortened(_quoted(names))}],"
            f" but missing required input(s) {'[' if missing else ''}{_quoted(missing)}]."
            " Please provide all required input(s).",
        )

    def _check_batch(self, request: InferenceRequest) -> int:
        """The number of batch rows, equal for all inputs; an empty batch counts as one row."""
        rows: int | None = None
        for name, tensor in _last_first(request):
            if name in self._shape_tensors and len(tensor.shape) == 1:
                continue  # sent once, whatever the number of rows
            if not tensor.shape:
                raise _refused(
                    request,
                    f"input '{shortened(name)}' has no shape but model requires batch dimension"
                    f" for '{self._model}'",
                )
            if rows is not None and tensor.shape[0] != rows:
                raise _refused(
                    request,
                    f"input '{shortened(name)}' batch size does not match other inputs"
                    f" for '{self._model}'",
                )
            rows = tensor.shape[0]
        rows = rows or 1
        if rows > self._max_batch_size:
            raise _refused(
                request,
                f"inference request batch-size must be <= {self._max_batch_size}"
                f" for '{self._model}'",
            )
        return rows

    def _check_input(self, request: InferenceRequest, name: str, tensor: Tensor) -> None:
        known = self._inputs.get(name)
        if known is None:
            raise InvalidRequestError(
                f"unexpected inference input '{shortened(name)}' for model '{self._model}'"
            )
        expected = known.data_type or DataType.INVALID
        if tensor.datatype is not expected:
            raise _refused(
                request,
                f"inference input '{name}' data-type is '{tensor.datatype.value}',"
                f" but model '{self._model}' expects '{expected.value}'",
            )
        self._check_shape(request, known, tensor)
        if tensor.datatype is DataType.BYTES:
            self._check_elements(request, name, tensor)
        elif not known.is_non_linear_format_io:  # which is longer than its shape says (V-15)
            self._check_size(request, name, tensor)
        if tensor.shape and min(tensor.shape) < 0:  # with no data; otherwise the size check failed
            raise self._unexpected_shape(request, known, tensor)

    def _check_shape(self, request: InferenceRequest, known: ModelInput, tensor: Tensor) -> None:
        shape = tensor.shape[1:] if self._max_batch_size else tensor.shape
        if len(tensor.shape) == 1 and known.name in self._shape_tensors:
            # Its values alone, or with the batch size in front of them (V-14).
            values = tensor.shape[0]
            shape = (values if tensor.shape == known.dims else values - 1,)
        if not _fits(shape, known.dims):
            raise self._unexpected_shape(request, known, tensor)
        if -1 in shape:
            raise _refused(
                request,
                f"All input dimensions should be specified for input '{known.name}' for model"
                f" '{self._model}', got {_dims(tensor.shape)}",
            )

    def _unexpected_shape(
        self, request: InferenceRequest, known: ModelInput, tensor: Tensor
    ) -> InvalidRequestError:
        batch, note = ((-1,), _BATCH_NOTE) if self._max_batch_size else ((), "")
        return _refused(
            request,
            f"unexpected shape for input '{known.name}' for model '{self._model}'. Expected"
            f" {_dims((*batch, *known.dims))}, got {_dims(tensor.shape)}. {note}",
        )

    def _check_size(self, request: InferenceRequest, name: str, tensor: Tensor) -> None:
        shape = tensor.shape
        if self._max_batch_size:
            # An empty batch is checked as one row; the number of rows is unsigned, of 32 bits.
            shape = (shape[0] % (1 << 32) or 1, *shape[1:])
        expected = prod(shape) * tensor.datatype.itemsize
        if expected != tensor.nbytes:
            raise _refused(
                request,
                f"input byte size mismatch for input '{name}' for model '{self._model}'."
                f" Expected {_as_int64(expected)}, got {tensor.nbytes}",
            )

    def _check_elements(self, request: InferenceRequest, name: str, tensor: Tensor) -> None:
        expected = prod(tensor.shape)
        where = f"for inference input '{name}' for model '{self._model}'"
        try:
            found = tensor.count
            if isinstance(found, InvalidRequestError):
                raise found
            if found is None:
                found = count_elements(tensor.buffer, f" for inference input '{name}'", expected)
            found = min(found, expected + 1)
        except CutLengthError as error:
            raise _refused(
                request,
                f"incomplete string length indicator {where}, expecting 4 bytes but only"
                f" {error.available} bytes available. Please make sure the string length indicator"
                " is in one buffer.",
            ) from error
        if found > expected:
            raise _refused(
                request,
                f"unexpected number of string elements {found} {where}, expecting {expected}",
            )
        if found < expected:
            raise _refused(request, f"expected {expected} string elements {where}, got {found}")


def _fits(shape: Sequence[int], dims: Sequence[int]) -> bool:
    """Whether a shape matches the dimensions; -1 on either side matches any size."""
    if len(shape) != len(dims):
        return False
    for size, dim in zip(shape, dims, strict=True):
        if size != dim and -1 not in (size, dim):
            return False
    return True


def _last_first(request: InferenceRequest) -> Iterator[tuple[str, Tensor]]:
    return reversed(tuple(request.inputs.items()))


def _refused(request: InferenceRequest, text: str) -> InvalidRequestError:
    """The error, prefixed with the request id (V-01)."""
    return InvalidRequestError(f"{request_prefix(request.id)}{text}")


def _quoted(names: Iterable[str]) -> str:
    return ",".join(f"'{name}'" for name in names)


def _dims(shape: Sequence[int]) -> str:
    return f"[{shortened(','.join(map(str, shape)))}]"


def _as_int64(number: int) -> int:
    """The number wrapped to a signed 64-bit integer, as Triton computes it."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Reshape:
    """Maps shapes that match `pattern` to `target`; the batch dimension is kept.

    Variable dimensions correspond in order. Shapes that do not match are kept.
    """

    pattern: Shape
    target: Shape
    batched: bool = False

    def __call__(self, shape: Shape) -> Shape:
        batch, dims = (shape[:1], shape[1:]) if self.batched else ((), shape)
        if not self._fits(dims):
            return shape
        variable = (n for n, given in zip(dims, self.pattern, strict=True) if given == -1)
        return batch + tuple(next(variable) if n == -1 else n for n in self.target)

    def _fits(self, dims: Shape) -> bool:
        return len(dims) == len(self.pattern) and all(
            n in (-1, m) for n, m in zip(self.pattern, dims, strict=True)
        )


def request_reshape(config: ModelConfig) -> Callable[[InferenceRequest], InferenceRequest] | None:
    """A transform of inputs to the model's shapes; `None` if none is reshaped.

    A shape tensor, whose values a client sends once, has them for each row of its batch, as the
    rows of requests are joined and counted.
    """
    reshapes = {
        tensor.name: Reshape(tensor.dims, tensor.reshape.shape, config.max_batch_size > 0)
        for tensor in config.input
        if tensor.reshape is not None
    }
    values = _shape_tensors(config)
    if values:
        return lambda request: request._replace(
            inputs=_reshaped(_with_rows(request.inputs, values), reshapes)
        )
    if not reshapes:
        return None
    return lambda request: request._replace(inputs=_reshaped(request.inputs, reshapes))


def _shape_tensors(config: ModelConfig) -> Mapping[str, int]:
    """The shape tensors of a model that batches, and how many values each has for a row."""
    if not config.max_batch_size:
        return {}
    return {tensor.name: prod(tensor.dims) for tensor in config.input if tensor.is_shape_tensor}


def _with_rows(inputs: Mapping[str, Tensor], values: Mapping[str, int]) -> dict[str, Tensor]:
    """The inputs, each of those with `values` once for each row of the others."""
    rows = next((t.shape[0] for name, t in inputs.items() if name not in values), 1)
    return {
        name: Tensor.from_numpy(np.tile(tensor.numpy()[-values[name] :], (rows, 1)))
        if name in values and len(tensor.shape) == 1
        else tensor
        for name, tensor in inputs.items()
    }


def response_reshape(
    config: ModelConfig,
) -> Callable[[InferenceResponse], InferenceResponse] | None:
    """A transform of outputs to clients' shapes; `None` if none is reshaped."""
    reshapes = {
        tensor.name: Reshape(tensor.reshape.shape, tensor.dims, config.max_batch_size > 0)
        for tensor in config.output
        if tensor.reshape is not None
    }
    if not reshapes:
        return None
    return lambda response: response.with_outputs(_reshaped(response.outputs, reshapes))


def _reshaped(tensors: Mapping[str, Tensor], reshapes: Mapping[str, Reshape]) -> dict[str, Tensor]:
    return {
        name: tensor.reshaped(reshapes[name](tensor.shape)) if name in reshapes else tensor
        for name, tensor in tensors.items()
    }


_MOST_ELEMENTS = 1_000_000
_NO_CLASSES = (DataType.BOOL, DataType.BYTES, DataType.FP16, DataType.BF16)


@dataclass(frozen=True, slots=True)
class Classifier:
    """Classifies the outputs of one model; `labels` are by output, in order of the index."""

    batched: bool
    labels: Mapping[str, Sequence[bytes]]

    def transform(self, classes: Mapping[str, int], former: Transform | None) -> Transform:
        """A transform, after `former`, that reduces outputs in `classes` to so many top classes."""

        def classified(response: InferenceResponse) -> InferenceResponse:
            if former is not None:
                response = former(response)
            try:
                outputs = {
                    name: self._classified(name, t, classes) for name, t in response.outputs.items()
                }
            except InferenceError as error:
                return InferenceResponse(final=response.final, error=error)
            return response.with_outputs(outputs)

        return classified

    def _classified(self, name: str, tensor: Tensor, classes: Mapping[str, int]) -> Tensor:
        count = classes.get(name)
        if count is None:
            return tensor
        return top_classes(tensor, count, self.labels.get(name, ()), self.batched)


def top_classes(tensor: Tensor, count: int, labels: Sequence[bytes], batched: bool) -> Tensor:
    """A BYTES tensor of shape `[batch,] count`: `value:index` or `value:index:label`, best first.

    A row has no more classes than elements. Raises `InvalidRequestError` (X-01 to X-04).
    """
    if tensor.datatype in _NO_CLASSES:
        raise InvalidRequestError(
            "class result not available for output due to unsupported type"
            f" '{tensor.datatype.value}'"
        )
    batch, dims = (tensor.shape[:1], tensor.shape[1:]) if batched else ((), tensor.shape)
    length = prod(dims)
    if length > _MOST_ELEMENTS:
        raise InvalidRequestError("classification output tensor too large")
    count = min(count, length)
    rows = _elements(tensor).reshape(prod(batch), length)
    texts = (text for row in rows for text in _texts(row, count, labels))
    return Tensor.from_strings(texts, (*batch, count))


def _elements(tensor: Tensor) -> Array:
    try:
        return tensor.numpy()
    except ValueError as error:  # the data does not match the shape
        raise InternalError(
            f"the data of the output tensor does not fit its shape {list(tensor.shape)}"
        ) from error


def _texts(row: Array, count: int, labels: Sequence[bytes]) -> Iterator[bytes]:
    for index in _highest(row, count):
        value = row[index]
        text = b"%.6f" % value if row.dtype.kind == "f" else b"%d" % value
        label = labels[index] if index < len(labels) else b""
        yield b"%b:%d:%b" % (text, index, label) if label else b"%b:%d" % (text, index)


def _highest(row: Array, count: int) -> Array:
    """The indexes of the highest values, best first; equal values in order of index."""
    if not count:
        return np.empty(0, np.intp)
    # Sort only the candidates: a row may have a million elements.
    lowest = np.partition(row, -count)[-count]
    candidates = np.flatnonzero(~(row < lowest))
    ascending = np.argsort(row[candidates][::-1], kind="stable")
    return candidates[::-1][ascending][::-1][:count]


class CallCycleCheck:
    """Checks the calls that instances, of any model, make to one model.

    `pool` returns the instances that can answer. Something `in_front` of their queue, such as a
    response cache, may answer without them, so that a cycle need not be a deadlock.
    """

    def __init__(self, config: ModelConfig, pool: Candidates, *, in_front: bool = False) -> None:
        self._name = config.name
        self._pool = pool
        self._certain = not (in_front or config.is_ensemble or _may_expire(config))

    def check(self, request: InferenceRequest) -> None:
        """Raise `UnsupportedError` for a request that only its own callers could answer."""
        pool = set(self._pool())
        if pool and pool <= {call.caller for call in request.scope.call_chain}:
            names = [*(call.caller.instance for call in request.scope.call_chain), self._name]
            raise UnsupportedError(
                f"model '{self._name}' is called by a request that its every instance is waiting"
                f" for: {' -> '.join(names)}; the call would wait for ever"
            )
        last = request.scope.call_chain[-1]
        if last.blocking and self._certain and (others := find_cycle(last, self._pool)):
            raise UnsupportedError(
                f"model '{self._name}' is called by instance '{last.caller.instance}', and its"
                " every instance waits for that one:"
                f" {', '.join(sorted(other.instance for other in others))};"
                " the call would wait for ever"
            )

    def wait(self, request: InferenceRequest) -> Wait | None:
        """The edge of the wait-for graph from caller to instances; `None` unless it is certain."""
        last: NestedCall = request.scope.call_chain[-1]
        return Wait(last, self._pool) if last.blocking and self._certain else None


def _may_expire(config: ModelConfig) -> bool:
    """Whether a request may time out in the queue."""
    batching = config.dynamic_batching
    if batching is None:
        return config.sequence_batching is not None
    policies = [batching.default_queue_policy, *batching.priority_queue_policy.values()]
    return any(
        policy.default_timeout_microseconds or policy.allow_timeout_override
        for policy in policies
        if policy is not None
    )
