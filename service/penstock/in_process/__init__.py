"""The public in-process API: a server without a port, for notebooks, tests and embedding.

    import penstock.in_process as tritonserver

    with tritonserver.Server(model_repository="models") as server:
        for response in server.model("simple").infer(inputs={"INPUT0": first, "INPUT1": second}):
            print(numpy.from_dlpack(response.outputs["OUTPUT0"]))

Names and behaviour are those of Triton's `tritonserver`; `penstock.in_process.frontend` has those
of `tritonfrontend`. `install` makes both importable by these names, and `python -m
penstock.in_process SCRIPT` does so for a script. `docs/in-process.md` explains it.
"""

from penstock import __version__
from penstock.in_process.aliases import install
from penstock.in_process.enums import (
    DataType,
    DLDeviceType,
    InstanceGroupKind,
    LogFormat,
    MemoryType,
    MetricFormat,
    MetricKind,
    ModelBatchFlag,
    ModelControlMode,
    ModelTxnPropertyFlag,
    RateLimitMode,
    RequestFlag,
    RequestReleaseFlag,
    ResponseCompleteFlag,
)
from penstock.in_process.errors import (
    AlreadyExistsError,
    CancelledError,
    InternalError,
    InvalidArgumentError,
    NotFoundError,
    TritonError,
    UnavailableError,
    UnknownError,
    UnsupportedError,
)
from penstock.in_process.host_metrics import Metric, MetricFamily
from penstock.in_process.model import Model
from penstock.in_process.options import ModelLoadDeviceLimit, Options, RateLimiterResource
from penstock.in_process.request import InferenceRequest
from penstock.in_process.response import (
    AsyncResponseIterator,
    InferenceResponse,
    ResponseIterator,
)
from penstock.in_process.server import ModelDictionary, Server
from penstock.in_process.tensor import MemoryBuffer, Tensor

__all__ = [
    "AlreadyExistsError",
    "AsyncResponseIterator",
    "CancelledError",
    "DLDeviceType",
    "DataType",
    "InferenceRequest",
    "InferenceResponse",
    "InstanceGroupKind",
    "InternalError",
    "InvalidArgumentError",
    "LogFormat",
    "MemoryBuffer",
    "MemoryType",
    "Metric",
    "MetricFamily",
    "MetricFormat",
    "MetricKind",
    "Model",
    "ModelBatchFlag",
    "ModelControlMode",
    "ModelDictionary",
    "ModelLoadDeviceLimit",
    "ModelTxnPropertyFlag",
    "NotFoundError",
    "Options",
    "RateLimitMode",
    "RateLimiterResource",
    "RequestFlag",
    "RequestReleaseFlag",
    "ResponseCompleteFlag",
    "ResponseIterator",
    "Server",
    "Tensor",
    "TritonError",
    "UnavailableError",
    "UnknownError",
    "UnsupportedError",
    "__version__",
    "install",
]
