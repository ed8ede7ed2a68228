"""Server reflection: tools learn services and messages from the server, in both its versions."""

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
    """Reflection of `services` and of itself."""
    own = {f"grpc.reflection.{name}.ServerReflection": pb for name, pb in _VERSIONS.items()}
    names = sorted({*own, *(service.name for service in services)})
    return [Reflection(pb, names).service(name) for name, pb in own.items()]


class Reflection:
    """Answers in the messages of one version, which are the same but for their package."""

    def __init__(self, pb: ModuleType, names: Iterable[str]) -> None:
        self._pb: Any = pb
        self._names = tuple(names)

    def service(self, name: str) -> Service:
        """The only method, for a transport to serve."""
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
        """The response to one request; what does not exist is told in it."""
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
        """Put into the response what is asked for; raises `KeyError` for what does not exist."""
        if kind == "list_services":
            for name in self._names:
                response.list_services_response.service.add(name=name)
        elif kind == "all_extension_numbers_of_type":
            name = request.all_extension_numbers_of_type
            POOL.FindMessageTypeByName(name)  # none of ours has extensions
            response.all_extension_numbers_response.base_type_name = name
        elif kind is None:
            response.error_response.error_code = StatusCode.INVALID_ARGUMENT
            response.error_response.error_message = "the request asks for nothing"
        else:
            files = _with_imports(_file(kind, request))
            response.file_descriptor_response.file_descriptor_proto.extend(files)


def _file(kind: str, request: Any) -> FileDescriptor:
    """The file that a request is about."""
    if kind == "file_by_filename":
        return POOL.FindFileByName(request.file_by_filename)
    if kind == "file_containing_symbol":
        return _declaring(request.file_containing_symbol)
    wanted = request.file_containing_extension
    message = POOL.FindMessageTypeByName(wanted.containing_type)
    return POOL.FindExtensionByNumber(message, wanted.extension_number).file


def _declaring(symbol: str) -> FileDescriptor:
    """The file that declares a symbol; the pool itself does not know methods as such."""
    service, _, method = symbol.rpartition(".")
    try:
        return POOL.FindFileContainingSymbol(symbol)
    except KeyError:
        return POOL.FindServiceByName(service).methods_by_name[method].containing_service.file


def _with_imports(file: FileDescriptor) -> Iterator[bytes]:
    """A file and all that it imports, each once, serialized."""
    files = {file.name: file}
    todo = [file]
    while todo:
        new = [f for f in todo.pop().dependencies if f.name not in files]
        files |= {f.name: f for f in new}
        todo += new
    return (found.serialized_pb for found in files.values())
