"""Server reflection, as tools such as grpcurl use it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from dataclasses import replace
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool

from penstock.protocol import reflection_pb2, reflection_v1alpha_pb2
from penstock.settings import GrpcSettings
from rpc.manual import ManualServer
from rpc.serving import HEALTH, SERVICE, Client, connected

VERSIONS = {"v1": reflection_pb2, "v1alpha": reflection_v1alpha_pb2}
SERVICES = [
    HEALTH,
    "grpc.reflection.v1.ServerReflection",
    "grpc.reflection.v1alpha.ServerReflection",
    SERVICE,
    "penstock.v1.Releases",
    "xds.service.orca.v3.OpenRcaService",
]


class Asked:
    """Asks one version of the service."""

    def __init__(self, client: Client, version: str) -> None:
        self._client = client
        self._pb: Any = VERSIONS[version]
        self._path = f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo"

    async def ask(self, *requests: dict[str, Any]) -> list[Any]:
        messages = [self._pb.ServerReflectionRequest(**request) for request in requests]
        call = self._client.channel.stream_stream(
            self._path,
            request_serializer=self._pb.ServerReflectionRequest.SerializeToString,
            response_deserializer=self._pb.ServerReflectionResponse.FromString,
        )(iter(messages))
        return [answer async for answer in call]


@pytest.fixture(params=VERSIONS)
async def asked(request: pytest.FixtureRequest, local: GrpcSettings) -> AsyncIterator[Asked]:
    async with connected(ManualServer(), local) as client:
        yield Asked(client, request.param)


def pool_of(files: Iterable[bytes]) -> DescriptorPool:
    """The answer as a client decodes it."""
    pool = DescriptorPool()
    for data in reversed(list(files)):
        pool.AddSerializedFile(data)
    return pool


async def test_every_served_service_is_listed(asked: Asked) -> None:
    (answer,) = await asked.ask({"list_services": "*", "host": "h"})
    assert [service.name for service in answer.list_services_response.service] == SERVICES
    assert (answer.valid_host, answer.original_request.host) == ("h", "h")


@pytest.mark.parametrize("service", SERVICES)
async def test_every_service_can_be_described(asked: Asked, service: str) -> None:
    (answer,) = await asked.ask({"file_containing_symbol": service})
    pool = pool_of(answer.file_descriptor_response.file_descriptor_proto)
    assert pool.FindServiceByName(service).methods


@pytest.mark.parametrize(
    "symbol",
    [
        f"{SERVICE}.ModelInfer",
        "inference.ModelInferRequest",
        "inference.ModelInferRequest.InferInputTensor",
        "inference.DataType",
    ],
)
async def test_methods_messages_and_enumerations_are_found(asked: Asked, symbol: str) -> None:
    (answer,) = await asked.ask({"file_containing_symbol": symbol})
    names = [
        FileDescriptorProto.FromString(data).name
        for data in answer.file_descriptor_response.file_descriptor_proto
    ]
    expected = ["model_config.proto"]
    assert names == (
        expected if symbol == "inference.DataType" else ["grpc_service.proto", *expected]
    )


async def test_a_file_is_found_by_its_name(asked: Asked) -> None:
    (answer,) = await asked.ask({"file_by_filename": "health.proto"})
    (data,) = answer.file_descriptor_response.file_descriptor_proto
    assert FileDescriptorProto.FromString(data).package == "grpc.health.v1"


@pytest.mark.parametrize(
    "request_",
    [
        {"file_by_filename": "nope.proto"},
        {"file_containing_symbol": "inference.Nope"},
        {"file_containing_symbol": f"{SERVICE}.Nope"},
        {"file_containing_symbol": ""},
        {"all_extension_numbers_of_type": "Nope"},
        {
            "file_containing_extension": {
                "containing_type": "inference.ModelConfig",
                "extension_number": 1,
            }
        },
    ],
)
async def test_unknown_symbol_is_reported_and_the_stream_continues(
    asked: Asked, request_: dict[str, Any]
) -> None:
    answers = await asked.ask(request_, {"list_services": ""})
    assert answers[0].error_response.error_code == 5
    assert len(answers[1].list_services_response.service) == len(SERVICES)


async def test_a_message_of_ours_has_no_extensions(asked: Asked) -> None:
    (answer,) = await asked.ask({"all_extension_numbers_of_type": "inference.ModelConfig"})
    numbers = answer.all_extension_numbers_response
    assert (numbers.base_type_name, list(numbers.extension_number)) == ("inference.ModelConfig", [])


async def test_a_request_for_nothing_is_refused(asked: Asked) -> None:
    (answer,) = await asked.ask({})
    assert answer.error_response.error_code == 3


async def test_reflection_can_be_switched_off(local: GrpcSettings) -> None:
    async with connected(ManualServer(), replace(local, reflection=False)) as client:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await Asked(client, "v1").ask()  # who writes may hear of an error of its own
    assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED
