"""The public client: `Client` speaks gRPC or HTTP with servers of the KServe v2 protocol.

    async with Client("localhost:8001") as client:
        result = await client.infer("simple", {"INPUT0": first, "INPUT1": second})
        print(result["OUTPUT0"])
        async for token in client.generate("tiny_llm", "The file is", max_tokens=64):
            print(token, end="", flush=True)

What is in `__all__` here is stable; `docs/client.md` explains it.
"""

from penstock.core.tensor import DataType, Tensor
from penstock_client.client.client import Client
from penstock_client.client.errors import (
    AbortedError,
    AlreadyExistsError,
    CancelledError,
    ClientError,
    ConnectionLostError,
    DataLossError,
    DeadlineExceededError,
    FailedPreconditionError,
    InternalError,
    InvalidArgumentError,
    NoServerError,
    NotFoundError,
    OutOfRangeError,
    PermissionDeniedError,
    ResourceExhaustedError,
    UnauthenticatedError,
    UnavailableError,
    UnimplementedError,
    UnknownError,
)
from penstock_client.client.policy import CallPolicy
from penstock_client.client.request import Result
from penstock_client.client.shared_memory import SharedMemory, SharedTensor
from penstock_client.client.transport import Tls
from penstock_client.reading.views import (
    ModelEntry,
    ModelMetadata,
    ModelStatistics,
    ServerMetadata,
    TensorMetadata,
)

__all__ = [
    "AbortedError",
    "AlreadyExistsError",
    "CallPolicy",
    "CancelledError",
    "Client",
    "ClientError",
    "ConnectionLostError",
    "DataLossError",
    "DataType",
    "DeadlineExceededError",
    "FailedPreconditionError",
    "InternalError",
    "InvalidArgumentError",
    "ModelEntry",
    "ModelMetadata",
    "ModelStatistics",
    "NoServerError",
    "NotFoundError",
    "OutOfRangeError",
    "PermissionDeniedError",
    "ResourceExhaustedError",
    "Result",
    "ServerMetadata",
    "SharedMemory",
    "SharedTensor",
    "Tensor",
    "TensorMetadata",
    "Tls",
    "UnauthenticatedError",
    "UnavailableError",
    "UnimplementedError",
    "UnknownError",
]
