"""Calls to a server beside the load: about models, statistics, shared memory."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import quote

from google.protobuf.json_format import MessageToDict

from penstock.core.tensor import DataType
from penstock.protocol import grpc_service_pb2 as pb
from penstock_client.perf.errors import PerfError, Status
from penstock_client.perf.wire.asking import (
    NoAnswerError,
    RefusedError,
    UnknownQuestionError,
    ask_grpc,
    ask_json,
)
from penstock_client.perf.wire.endpoint import Endpoint

SERVICE = "/inference.GRPCInferenceService/"
_BINARY = "binary_tensor_data"
"""The extension of servers that take and give tensors as bytes behind the JSON of HTTP."""
_DATATYPES = frozenset(each.value for each in DataType)


class ExtensionError(PerfError):
    """The server lacks the extension of the protocol that was asked for."""


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """An input or output of a model; `shape` without the batch dimension, -1 where it varies."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    optional: bool = False


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """A model as its metadata and configuration describe it.

    `largest_batch` is 0 for a model without a batch dimension; `steps` are the models of an
    ensemble. Servers other than Triton and its like have no configuration: shapes are then whole.
    """

    name: str
    version: str
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    largest_batch: int = 0
    decoupled: bool = False
    steps: tuple[str, ...] = ()

    def input(self, name: str) -> TensorInfo | None:
        """The input of this name, if there is one."""
        return next((each for each in self.inputs if each.name == name), None)


class Server(Protocol):
    """A server of the KServe v2 protocol; every method raises `PerfError`."""

    endpoint: Endpoint

    def model(self, name: str, version: str) -> ModelInfo:
        """The inputs and outputs of a model."""

    def takes_binary(self) -> bool:
        """Whether tensors may be sent as they are in memory."""

    def statistics(self) -> dict[str, Any]:
        """The statistics of all models, as JSON."""

    def register(self, region: str, key: str, size: int) -> None:
        """Register a region of system shared memory."""

    def unregister(self, region: str) -> None:
        """Forget a region of system shared memory."""


class GrpcServer:
    """A server that is asked over gRPC."""

    def __init__(self, endpoint: Endpoint, metadata: Mapping[str, str]) -> None:
        self.endpoint = endpoint
        self._metadata = metadata

    def model(self, name: str, version: str) -> ModelInfo:
        metadata = self._ask(
            "ModelMetadata",
            pb.ModelMetadataRequest(name=name, version=version),
            pb.ModelMetadataResponse,
        )
        request = pb.ModelConfigRequest(name=name, version=version)
        with suppress(ExtensionError):
            config = self._ask("ModelConfig", request, pb.ModelConfigResponse)
            return _model(self.endpoint, metadata, config.get("config", {}), version)
        return _model(self.endpoint, metadata, {}, version)

    def takes_binary(self) -> bool:
        return True

    def statistics(self) -> dict[str, Any]:
        request = pb.ModelStatisticsRequest()
        return self._ask("ModelStatistics", request, pb.ModelStatisticsResponse)

    def register(self, region: str, key: str, size: int) -> None:
        request = pb.SystemSharedMemoryRegisterRequest(name=region, key=key, byte_size=size)
        self._ask("SystemSharedMemoryRegister", request, pb.SystemSharedMemoryRegisterResponse)

    def unregister(self, region: str) -> None:
        request = pb.SystemSharedMemoryUnregisterRequest(name=region)
        self._ask("SystemSharedMemoryUnregister", request, pb.SystemSharedMemoryUnregisterResponse)

    def _ask(self, method: str, request: Any, response: Any) -> dict[str, Any]:
        sent = request.SerializeToString()
        try:
            answer = ask_grpc(self.endpoint, SERVICE + method, sent, self._metadata)
        except NoAnswerError as error:
            raise _unreachable(self.endpoint, error, "gRPC") from error
        except UnknownQuestionError as error:
            raise _lacks(method, error, self.endpoint) from error
        except RefusedError as error:
            raise _refused(method, error, self.endpoint) from error
        found: dict[str, Any] = MessageToDict(
            response.FromString(answer), preserving_proto_field_name=True
        )
        return found


class HttpServer:
    """A server that is asked over HTTP."""

    def __init__(self, endpoint: Endpoint, headers: Mapping[str, str], prefix: str = "") -> None:
        self.endpoint = endpoint
        self._headers = headers
        self._prefix = prefix

    def model(self, name: str, version: str) -> ModelInfo:
        path = model_path(name, version)
        metadata = self._get(path)
        with suppress(ExtensionError):
            return _model(self.endpoint, metadata, self._get(f"{path}/config"), version)
        return _model(self.endpoint, metadata, {}, version)

    def takes_binary(self) -> bool:
        with suppress(ExtensionError):
            return _BINARY in self._get("/v2").get("extensions", ())
        return False

    def statistics(self) -> dict[str, Any]:
        return self._get("/v2/models/stats")

    def register(self, region: str, key: str, size: int) -> None:
        path = f"/v2/systemsharedmemory/region/{region}/register"
        self._ask("POST", path, {"key": key, "offset": 0, "byte_size": size})

    def unregister(self, region: str) -> None:
        self._ask("POST", f"/v2/systemsharedmemory/region/{region}/unregister", {})

    def _get(self, path: str) -> dict[str, Any]:
        return self._ask("GET", path)

    def _ask(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        try:
            found = ask_json(self.endpoint, method, self._prefix + path, self._headers, body)
        except NoAnswerError as error:
            raise _unreachable(self.endpoint, error, "HTTP") from error
        except UnknownQuestionError as error:
            raise _lacks(f"{method} {path}", error, self.endpoint) from error
        except RefusedError as error:
            raise _refused(f"{method} {path}", error, self.endpoint) from error
        if not isinstance(found, dict):
            raise PerfError(f"{self.endpoint.authority} is no KServe server", Status.UNREACHABLE)
        return found


def model_path(name: str, version: str) -> str:
    """The path of a model over HTTP, of its newest version where none is named."""
    path = f"/v2/models/{quote(name, safe='')}"
    return f"{path}/versions/{quote(version, safe='')}" if version else path


def _unreachable(endpoint: Endpoint, error: Exception, wire: str) -> PerfError:
    text = f"no answer over {wire} from {endpoint.authority}: {error}"
    return PerfError(text, Status.UNREACHABLE)


def _refused(question: str, error: Exception, endpoint: Endpoint) -> PerfError:
    return PerfError(f"{endpoint.authority} refused {question}: {error}", Status.UNREACHABLE)


def _lacks(question: str, error: Exception, endpoint: Endpoint) -> ExtensionError:
    return ExtensionError(f"{endpoint.authority} refused {question}: {error}", Status.UNREACHABLE)


def _model(
    endpoint: Endpoint, metadata: Mapping[str, Any], config: Mapping[str, Any], version: str
) -> ModelInfo:
    """The model by its metadata, and its configuration where there is one."""
    name = metadata["name"]
    if not config and not metadata.get("inputs"):
        text = f"{endpoint.authority} names no inputs of model '{name}' that requests could be of"
        raise PerfError(text, Status.UNREACHABLE)
    largest = int(config.get("max_batch_size", 0))
    optional = {each["name"] for each in config.get("input", ()) if each.get("optional")}
    steps = config.get("ensemble_scheduling", {}).get("step", ())
    return ModelInfo(
        name=name,
        version=version,
        inputs=tuple(_tensor(each, largest, optional) for each in metadata.get("inputs", ())),
        outputs=tuple(_tensor(each, largest, optional) for each in metadata.get("outputs", ())),
        largest_batch=largest,
        decoupled=bool(config.get("model_transaction_policy", {}).get("decoupled", False)),
        steps=tuple(step["model_name"] for step in steps),
    )


def _tensor(entry: Mapping[str, Any], largest: int, optional: set[str]) -> TensorInfo:
    name, datatype = entry["name"], entry["datatype"]
    if datatype not in _DATATYPES:
        text = f"tensor '{name}' has datatype '{datatype}', which is none of the protocol's"
        raise PerfError(text, Status.UNREACHABLE)
    shape = tuple(int(size) for size in entry.get("shape", ()))
    return TensorInfo(name, datatype, shape[1:] if largest else shape, name in optional)
