"""Enumerations with the names and numbers of Triton's in-process API."""

from __future__ import annotations

from enum import IntEnum, IntFlag


class ModelControlMode(IntEnum):
    """When models are loaded; `DEMAND`, when they are called first, is Penstock's own."""

    NONE = 0
    POLL = 1
    EXPLICIT = 2
    DEMAND = 3


class RateLimitMode(IntEnum):
    """Whether the rate limiter is on."""

    OFF = 0
    EXEC_COUNT = 1


class LogFormat(IntEnum):
    """The form of the log's lines."""

    DEFAULT = 0
    ISO8601 = 1


class InstanceGroupKind(IntEnum):
    """Devices of instances."""

    AUTO = 0
    CPU = 1
    GPU = 2
    MODEL = 3


class MetricFormat(IntEnum):
    """The form of the metrics page."""

    PROMETHEUS = 0


class MetricKind(IntEnum):
    """The type of a custom metric."""

    COUNTER = 0
    GAUGE = 1


class ModelBatchFlag(IntFlag):
    """Whether the first dimension of a model's tensors is the batch."""

    UNKNOWN = 1
    FIRST_DIM = 2


class ModelTxnPropertyFlag(IntFlag):
    """Whether a model answers once, or any number of times."""

    ONE_TO_ONE = 1
    DECOUPLED = 2


class RequestFlag(IntFlag):
    """Flags of a request: it begins or ends a sequence."""

    SEQUENCE_START = 1
    SEQUENCE_END = 2


class RequestReleaseFlag(IntFlag):
    """Flags of the release of a request."""

    ALL = 1
    RESCHEDULE = 2


class ResponseCompleteFlag(IntFlag):
    """Flags of a response: it is the last."""

    FINAL = 1


class MemoryType(IntEnum):
    """Kinds of memory."""

    CPU = 0
    CPU_PINNED = 1
    GPU = 2


class DLDeviceType(IntEnum):
    """Kinds of devices, as DLPack numbers them."""

    kDLCPU = 1  # noqa: N815
    kDLCUDA = 2  # noqa: N815
    kDLCUDAHost = 3  # noqa: N815


class DataType(IntEnum):
    """Datatypes of tensors."""

    INVALID = 0
    BOOL = 1
    UINT8 = 2
    UINT16 = 3
    UINT32 = 4
    UINT64 = 5
    INT8 = 6
    INT16 = 7
    INT32 = 8
    INT64 = 9
    FP16 = 10
    FP32 = 11
    FP64 = 12
    BYTES = 13
    BF16 = 14
