"""Server reflection: the services `grpc.reflection.v1` and `v1alpha`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator
from types import ModuleType
from typing import Any

from google.protobuf.descriptor import FileDescriptor

from penstock.protocol import reflection_pb2, reflection_v1alpha_pb2
from penstock.protocol.pool import POOL
from penstock.rpc.context import Method, RpcContext, Service
from penstock.rpc.status import StatusCode

_VERSIONS = {"v1": reflection_pb2, "v1alpha": reflection_v1alpha_pb2}


def reflection_services(services: Iterable[Service]) -> list[Service]:
    """The reflection services, which list `services` and themselves."""
    own = {f"grpc.reflection.{name}.ServerReflection": pb for name, pb in _VERSIONS.items()}
    names = sorted({*own, *(service.name for service in services)})
    return [Reflection(pb, names).service(name) for name, pb in own.items()]


class Reflection:
    """The reflection service in one version; versions differ in the package of their messages."""

    def __init__(self, pb: ModuleType, names: Iterable[str]) -> None:
        self._pb: Any = pb
        self._names = tuple(names)

    def service(self, name: str) -> Service:
        """The service with its only method."""
        method = Method(
            "ServerReflectionInfo",
            self._pb.ServerReflectionRequest,
            self._pb.ServerReflectionResponse,
            self.ServerReflectionInfo,
            client_streaming=True,
            server_streaming=True,
        )
        return Service(name, [method])

    async def ServerReflectionInfo(self, requests: AsyncIterator[Any], context: RpcContext) -> None:
        async for request in requests:
            await context.write(self.answer(request))

    def answer(self, request: Any) -> Any:
        """The response to one request; it holds an error for a symbol that does not exist."""
        response = self._pb.ServerReflectionResponse(
            valid_host=request.host, original_request=request
        )
        kind = request.WhichOneof("message_request")
        try:
            self._fill(response, kind, request)
        except KeyError:
            response.error_response.error_code = StatusCode.NOT_FOUND
            response.error_response.error_message = f"{kind}: not found"
        return response

    def _fill(self, response: Any, kind: str | None, request: Any) -> None:
        """Set the requested field of the response; raises `KeyError` for an unknown symbol."""
        if kind == "list_services":
            for name in self._names:
                response.list_services_response.service.add(name=name)
        elif kind == "all_extension_numbers_of_type":
            name = request.all_extension_numbers_of_type
            POOL.FindMessageTypeByName(name)  # raises KeyError; no message here has extensions
            response.all_extension_numbers_response.base_type_name = name
        elif kind is None:
            response.error_response.error_code = StatusCode.INVALID_ARGUMENT
            response.error_response.error_message = (
                "the request is empty: set one field of message_request"
            )
        else:
            files = _with_imports(_file(kind, request))
            response.file_descriptor_response.file_descriptor_proto.extend(files)


def _file(kind: str, request: Any) -> FileDescriptor:
    """The file descriptor that a request names; raises `KeyError`."""
    if kind == "file_by_filename":
        return POOL.FindFileByName(request.file_by_filename)
    if kind == "file_containing_symbol":
        return _declaring(request.file_containing_symbol)
    wanted = request.file_containing_extension
    message = POOL.FindMessageTypeByName(wanted.containing_type)
    return POOL.FindExtensionByNumber(message, wanted.extension_number).file


def _declaring(symbol: str) -> FileDescriptor:
    """The file that declares a symbol; the pool itself does not find methods."""
    service, _, method = symbol.rpartition(".")
    try:
        return POOL.FindFileContainingSymbol(symbol)
    except KeyError:
        return POOL.FindServiceByName(service).methods_by_name[method].containing_service.file


def _with_imports(file: FileDescriptor) -> Iterator[bytes]:
    """A file and all of its imports, each once, serialized."""
    files = {file.name: file}
    todo = [file]
    while todo:
        new = [f for f in todo.pop().dependencies if f.name not in files]
        files |= {f.name: f for f in new}
        todo += new
    return (found.serialized_pb for found in files.values())
