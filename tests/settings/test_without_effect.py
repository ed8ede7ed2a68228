"""Options of Triton that are accepted and do nothing: each is told of when it is set."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from penstock.settings import (
    DeviceSettings,
    GrpcSettings,
    HttpSettings,
    KeepaliveSettings,
    RepositorySettings,
    SagemakerSettings,
    Settings,
    VertexSettings,
)
from penstock.settings.fields import default_value, value_of
from penstock.settings.without_effect import without_effect

PLAIN = Settings(repository=RepositorySettings(paths=("models",)))
LOOP = "one event loop serves all endpoints"
POOLS = "tensors are in shared memory that the server shares with its model processes"


def test_nothing_is_told_of_defaults() -> None:
    assert list(without_effect(PLAIN)) == []


@pytest.mark.contract("I-22")
@pytest.mark.parametrize(
    ("changed", "line"),
    [
        ({"http": HttpSettings(thread_count=1)}, f"http-thread-count has no effect: {LOOP}"),
        (
            {"grpc": GrpcSettings(infer_thread_count=3)},
            f"grpc-infer-thread-count has no effect: {LOOP}",
        ),
        (
            {"sagemaker": SagemakerSettings(thread_count=1)},
            f"sagemaker-thread-count has no effect: {LOOP}",
        ),
        (
            {"vertex": VertexSettings(thread_count=1)},
            f"vertex-ai-thread-count has no effect: {LOOP}",
        ),
        (
            {"grpc": GrpcSettings(infer_allocation_pool_size=1)},
            "grpc-infer-allocation-pool-size has no effect: requests and responses are not pooled",
        ),
        (
            {"devices": DeviceSettings(pinned_memory_pool_byte_size=0)},
            f"pinned-memory-pool-byte-size has no effect: {POOLS}",
        ),
        (
            {"devices": DeviceSettings(cuda_memory_pool_byte_size={0: 1})},
            f"cuda-memory-pool-byte-size has no effect: {POOLS}",
        ),
        (
            {"devices": DeviceSettings(cuda_virtual_address_size={0: 1})},
            "cuda-virtual-address-size has no effect: the states of sequences are kept in host"
            " memory",
        ),
        (
            {"devices": DeviceSettings(buffer_manager_thread_count=1)},
            "buffer-manager-thread-count has no effect: tensors are copied by the process that"
            " needs them",
        ),
        (
            {"devices": DeviceSettings(peer_access=False)},
            "enable-peer-access has no effect: the server itself does not copy from one GPU to"
            " another",
        ),
        (
            {"grpc": GrpcSettings(keepalive=KeepaliveSettings(max_pings_without_data=0))},
            "grpc-http2-max-pings-without-data has no effect: the native transport pings as often"
            " as --grpc-keepalive-time says, with data or without",
        ),
    ],
)
def test_each_option_is_told_with_its_reason(changed: dict[str, Any], line: str) -> None:
    assert list(without_effect(replace(PLAIN, **changed))) == [f"--{line}"]


def test_the_other_transport_counts_pings() -> None:
    keepalive = KeepaliveSettings(max_pings_without_data=0)
    grpcio = replace(PLAIN, grpc=GrpcSettings(transport="grpcio", keepalive=keepalive))
    assert list(without_effect(grpcio)) == []


def test_a_field_is_found_by_its_path() -> None:
    assert (default_value("http.port"), value_of(PLAIN, "http.port")) == (8000, 8000)
    assert (default_value("id"), value_of(PLAIN, "id")) == ("triton", "triton")
    assert value_of(replace(PLAIN, http=HttpSettings(port=1)), "http.port") == 1
