"""Our messages are those of the stock Triton client, name by name and number by number."""

import copy
import pickle

import pytest
from google.protobuf import descriptor_pool
from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.message import Message
from tritonclient.grpc import model_config_pb2 as theirs_model_config
from tritonclient.grpc import service_pb2 as theirs_service

from penstock.protocol import grpc_service_pb2, health_pb2, model_config_pb2
from penstock.protocol.pool import POOL


def structure(file: FileDescriptor) -> FileDescriptorProto:
    """`file` without its options, which say nothing about what travels."""
    proto = FileDescriptorProto()
    file.CopyToProto(proto)
    proto.ClearField("options")
    return proto


@pytest.mark.contract("G-23", "G-24", "G-25", "G-26", "G-27")
@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (grpc_service_pb2.DESCRIPTOR, theirs_service.DESCRIPTOR),
        (model_config_pb2.DESCRIPTOR, theirs_model_config.DESCRIPTOR),
    ],
    ids=["grpc_service", "model_config"],
)
def test_descriptors_equal_those_of_tritonclient(
    ours: FileDescriptor, theirs: FileDescriptor
) -> None:
    assert structure(ours) == structure(theirs)


def test_both_live_in_one_process_because_the_pools_differ() -> None:
    default = descriptor_pool.Default()
    assert POOL.FindMessageTypeByName("inference.ModelInferRequest") is not (
        default.FindMessageTypeByName("inference.ModelInferRequest")
    )


def test_the_default_pool_holds_none_of_our_files() -> None:
    with pytest.raises(KeyError):
        descriptor_pool.Default().FindMessageTypeByName("grpc.health.v1.HealthCheckRequest")


def test_tritonclient_reads_what_we_write() -> None:
    request = grpc_service_pb2.ModelInferRequest(model_name="m", raw_input_contents=[b"\1\2"])
    request.inputs.add(name="x", datatype="INT16", shape=[1])
    request.parameters["p"].double_param = 0.5
    copied = theirs_service.ModelInferRequest.FromString(request.SerializeToString())
    assert str(copied) == str(request)


@pytest.mark.parametrize(
    "message",
    [
        model_config_pb2.ModelConfig(name="m", max_batch_size=4),
        health_pb2.HealthCheckResponse(status=health_pb2.HealthCheckResponse.SERVING),
    ],
)
def test_messages_survive_pickle_and_deepcopy(message: Message) -> None:
    assert pickle.loads(pickle.dumps(message)) == message
    assert copy.deepcopy(message) == message


@pytest.mark.contract("G-22")
def test_health_has_its_three_methods() -> None:
    service = POOL.FindServiceByName("grpc.health.v1.Health")
    assert set(service.methods_by_name) == {"Check", "Watch", "List"}
