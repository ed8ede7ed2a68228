"""Tensors of a model as its configuration declares them."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from enum import StrEnum

from penstock.core.config.schema import ConfigPart, Int64
from penstock.core.tensor import DataType


class TensorFormat(StrEnum):
    """Order of the dimensions of an image; a hint for clients."""

    FORMAT_NONE = "FORMAT_NONE"
    FORMAT_NHWC = "FORMAT_NHWC"
    FORMAT_NCHW = "FORMAT_NCHW"


@dataclass(frozen=True, slots=True)
class TensorReshape(ConfigPart):
    """The shape that the backend sees, without the batch dimension."""

    shape: tuple[Int64, ...] = ()


@dataclass(frozen=True, slots=True)
class Input(ConfigPart):
    """An input; `dims` are the shape of one request's tensor, where -1 is any length.

    The batch dimension is not among them: in a model with `max_batch_size` above 0 clients send,
    and models see, one dimension more.
    """

    name: str = ""
    data_type: DataType | None = None
    _: KW_ONLY
    format: TensorFormat = TensorFormat.FORMAT_NONE
    dims: tuple[Int64, ...] = ()
    reshape: TensorReshape | None = None
    is_shape_tensor: bool = False
    allow_ragged_batch: bool = False
    optional: bool = False
    is_non_linear_format_io: bool = False

    @property
    def backend_dims(self) -> tuple[int, ...]:
        """The dimensions as the backend sees them."""
        return self.dims if self.reshape is None else self.reshape.shape


@dataclass(frozen=True, slots=True)
class Output(ConfigPart):
    """An output; `dims` are as those of an `Input`."""

    name: str = ""
    data_type: DataType | None = None
    _: KW_ONLY
    dims: tuple[Int64, ...] = ()
    reshape: TensorReshape | None = None
    label_filename: str = ""
    is_shape_tensor: bool = False
    is_non_linear_format_io: bool = False

    @property
    def backend_dims(self) -> tuple[int, ...]:
        """The dimensions as the backend produces them."""
        return self.dims if self.reshape is None else self.reshape.shape


ModelInput = Input
ModelOutput = Output
"""Their names in the protocol."""


class BatchInputKind(StrEnum):
    """The content of a tensor that the server computes for each batch."""

    BATCH_ELEMENT_COUNT = "BATCH_ELEMENT_COUNT"
    BATCH_ACCUMULATED_ELEMENT_COUNT = "BATCH_ACCUMULATED_ELEMENT_COUNT"
    BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO = "BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO"
    BATCH_MAX_ELEMENT_COUNT_AS_SHAPE = "BATCH_MAX_ELEMENT_COUNT_AS_SHAPE"
    BATCH_ITEM_SHAPE = "BATCH_ITEM_SHAPE"
    BATCH_ITEM_SHAPE_FLATTEN = "BATCH_ITEM_SHAPE_FLATTEN"


@dataclass(frozen=True, slots=True)
class BatchInput(ConfigPart):
    """A tensor that the server computes for each batch; clients never send it."""

    kind: BatchInputKind = BatchInputKind.BATCH_ELEMENT_COUNT
    target_name: tuple[str, ...] = ()
    data_type: DataType | None = None
    source_input: tuple[str, ...] = ()


class BatchOutputKind(StrEnum):
    """How an output is split between the requests of a batch."""

    BATCH_SCATTER_WITH_INPUT_SHAPE = "BATCH_SCATTER_WITH_INPUT_SHAPE"


@dataclass(frozen=True, slots=True)
class BatchOutput(ConfigPart):
    """An output that is split by other means than the batch dimension."""

    target_name: tuple[str, ...] = ()
    kind: BatchOutputKind = BatchOutputKind.BATCH_SCATTER_WITH_INPUT_SHAPE
    source_input: tuple[str, ...] = ()
