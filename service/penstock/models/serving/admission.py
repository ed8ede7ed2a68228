"""Validation of requests against the model's configuration, once, before scheduling.

Messages and order of checks are Triton's; inputs are checked last to first, as there.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from math import prod

from penstock.core.config import ModelConfig, ModelInput
from penstock.core.errors import InvalidRequestError, request_prefix, shortened
from penstock.core.request import InferenceRequest
from penstock.core.tensor import CutLengthError, DataType, Tensor, count_elements

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
        else:
            self._check_size(request, name, tensor)
        if tensor.shape and min(tensor.shape) < 0:  # with no data; otherwise the size check failed
            raise self._unexpected_shape(request, known, tensor)

    def _check_shape(self, request: InferenceRequest, known: ModelInput, tensor: Tensor) -> None:
        shape = tensor.shape[1:] if self._max_batch_size else tensor.shape
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
