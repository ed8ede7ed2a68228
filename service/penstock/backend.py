"""The public interface for authors of backends: everything that a backend needs, in one module.

A backend is a class made from `Backend`, announced by its distribution as an entry point of the
group `penstock.backends`; `docs/backends.md` shows a whole one. What is in `__all__` here is
stable; the modules that these names come from are not, so import them from here.

Importing this needs numpy and nothing else: it happens in model processes too, whose interpreter
may not have what the server needs.
"""

from penstock.core.backend import (
    OTLP_ENDPOINT,
    OTLP_PROTOCOL,
    SHARED_TMPDIR,
    Backend,
    Controllable,
    Host,
    InstanceContext,
    Outcome,
    Traits,
    WithApplication,
    WithInterpreter,
    WithMetrics,
    WithReadiness,
    WithVariants,
)
from penstock.core.config import (
    Accelerator,
    BatchInput,
    BatchInputKind,
    BatchOutput,
    BatchOutputKind,
    Control,
    ControlInput,
    ControlKind,
    DynamicBatching,
    ExecutionAccelerators,
    Input,
    InstanceGroup,
    InstanceKind,
    ModelConfig,
    Optimization,
    Output,
    Parameter,
    SequenceBatching,
    SequenceState,
    TensorFormat,
    TensorReshape,
    TransactionPolicy,
)
from penstock.core.delivery import deliver
from penstock.core.device_tensor import DeviceTensor
from penstock.core.errors import (
    AlreadyExistsError,
    BackendNotInstalledError,
    ConfigError,
    DeadlineExceededError,
    ExhaustedError,
    InferenceError,
    InternalError,
    InvalidRequestError,
    ModelLoadError,
    NotFoundError,
    RejectedError,
    RequestCancelledError,
    UnavailableError,
    UnsupportedError,
    as_inference_error,
)
from penstock.core.flow_control import Window
from penstock.core.http_exchange import ASGI_DESCRIPTION, ASGI_EXTENSION, AsgiApp
from penstock.core.nearest_name import suggestion
from penstock.core.placement import Placement
from penstock.core.request import (
    TEXT_OUTPUT,
    InferenceRequest,
    InferenceResponse,
    Parameters,
    ParameterValue,
    ReportUsage,
    RequestScope,
    TextResponse,
    rows_of,
)
from penstock.core.stream import ResponseStream
from penstock.core.tensor import Array, DataType, Tensor, decode_elements, encode_elements
from penstock.core.timeline import Fact, Timeline, TraceContext
from penstock.metrics.histogram import Histogram
from penstock.metrics.language_model import LANGUAGE_MODEL_METRICS, TRITON_VLLM_METRICS
from penstock.metrics.registry import metrics_registry
from penstock.metrics.series_name import series_name
from penstock.system.archives import ArchiveError, zip_members
from penstock.system.cpu_share import share_of_cores, sharers

__all__ = [
    "ASGI_DESCRIPTION",
    "ASGI_EXTENSION",
    "LANGUAGE_MODEL_METRICS",
    "OTLP_ENDPOINT",
    "OTLP_PROTOCOL",
    "SHARED_TMPDIR",
    "TEXT_OUTPUT",
    "TRITON_VLLM_METRICS",
    "Accelerator",
    "AlreadyExistsError",
    "ArchiveError",
    "Array",
    "AsgiApp",
    "Backend",
    "BackendNotInstalledError",
    "BatchInput",
    "BatchInputKind",
    "BatchOutput",
    "BatchOutputKind",
    "ConfigError",
    "Control",
    "ControlInput",
    "ControlKind",
    "Controllable",
    "DataType",
    "DeadlineExceededError",
    "DeviceTensor",
    "DynamicBatching",
    "ExecutionAccelerators",
    "ExhaustedError",
    "Fact",
    "Histogram",
    "Host",
    "InferenceError",
    "InferenceRequest",
    "InferenceResponse",
    "Input",
    "InstanceContext",
    "InstanceGroup",
    "InstanceKind",
    "InternalError",
    "InvalidRequestError",
    "ModelConfig",
    "ModelLoadError",
    "NotFoundError",
    "Optimization",
    "Outcome",
    "Output",
    "Parameter",
    "ParameterValue",
    "Parameters",
    "Placement",
    "RejectedError",
    "ReportUsage",
    "RequestCancelledError",
    "RequestScope",
    "ResponseStream",
    "SequenceBatching",
    "SequenceState",
    "Tensor",
    "TensorFormat",
    "TensorReshape",
    "TextResponse",
    "Timeline",
    "TraceContext",
    "Traits",
    "TransactionPolicy",
    "UnavailableError",
    "UnsupportedError",
    "Window",
    "WithApplication",
    "WithInterpreter",
    "WithMetrics",
    "WithReadiness",
    "WithVariants",
    "as_inference_error",
    "decode_elements",
    "deliver",
    "encode_elements",
    "metrics_registry",
    "rows_of",
    "series_name",
    "share_of_cores",
    "sharers",
    "suggestion",
    "zip_members",
]
